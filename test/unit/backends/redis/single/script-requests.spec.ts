import { expect, it } from 'vitest';
import { RequestEncoder } from '../../../../../lib/backends/redis/single/script-requests.js';

const release = [{ key: 'a', holder: 'me', usedOneToken: true }] as const;
const renew = [{ key: 'b', holder: 'me', leaseMs: 1_000 }] as const;

it('a release is the only request of its call beside empty lists, and not beside a renewal', () => {
  const encoder = new RequestEncoder();
  const [alone] = encoder.encode({ release });
  expect(encoder.encode({ release, renew: [], acquire: [] })).toEqual([alone]);
  const [besideRenewal] = encoder.encode({ release, renew });
  expect(besideRenewal?.command).not.toBe(alone?.command);
});
