import { expect, it } from '@jest/globals';
import { Call } from '../../../../lib/backends/typeorm/call.js';
import { Carrier } from '../../../../lib/backends/typeorm/carrier.js';
import { Deadline } from '../../../../lib/backends/typeorm/deadline.js';
import type { Statements, Visit } from '../../../../lib/backends/typeorm/dialect.js';
import type { LockTable } from '../../../../lib/backends/typeorm/lock-table.js';
import { postgres } from '../../../../lib/backends/typeorm/postgres.js';
import { Gate } from '../../../gate.js';

it('an acquisition whose time ran out during the releases before it is never sent, as its asker was told', async () => {
  using deadline = new Deadline(30_000);
  const [released, sent] = [new Gate(), [] as string[]];
  const statements = {
    async release() {
      await released.passed;
      return [{ kind: 'released' }];
    },
    async acquire() {
      sent.push('acquire');
      return { each: [{ fencingToken: 1n }] };
    },
  } as unknown as Statements;
  const table = { isThere: true } as LockTable;
  const carrier = new Carrier({ dialect: postgres, table, statements });
  const release = new Call({ release: [{ key: 'a', holder: 'ours' }] }, 30_000);
  const acquire = new Call({ acquire: [{ key: 'b', holder: 'ours', leaseMs: 1_000, instance: 'spec' }] }, 20);
  const carried = carrier.carry([...release.errands, ...acquire.errands], {
    deadline,
    throwIfEnded: () => undefined,
  } as unknown as Visit);
  expect((await acquire.answered).acquire).toMatchObject([{ kind: 'unknown', wasSent: false }]);
  released.open();
  await carried;
  expect((await release.answered).release).toEqual([{ kind: 'released' }]);
  expect(sent).toEqual([]);
});

it('nothing was sent over a connection that has ended meanwhile, and the asker hears so', async () => {
  using deadline = new Deadline(30_000);
  const table = { isThere: true, doubt: () => undefined } as unknown as LockTable;
  const carrier = new Carrier({ dialect: postgres, table, statements: {} as Statements });
  const visit = {
    deadline,
    throwIfEnded() {
      throw new Error('ended');
    },
  } as unknown as Visit;
  const call = new Call({ renew: [{ key: 'a', holder: 'ours', leaseMs: 1_000 }] }, 30_000);
  await carrier.carry(call.errands, visit);
  expect((await call.answered).renew).toMatchObject([
    { kind: 'unknown', wasSent: false, cause: { message: 'ended' } },
  ]);
});
