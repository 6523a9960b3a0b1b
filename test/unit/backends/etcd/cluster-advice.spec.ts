import { expect, it } from 'vitest';
import { versionAdvice } from '../../../../lib/backends/etcd/cluster-advice.js';

it.each(['3.4.0', '3.4.30', '3.5.0-rc.1', '3.5.12'])(
  'a leader of etcd %s can end leases that its successor has renewed',
  (version) => expect(versionAdvice(version)).toEqual([expect.stringContaining(`etcd ${version} `)]),
);

it.each([
  '3.4.31',
  '3.4.45',
  '3.5.13',
  '3.5.13+vendor',
  '3.6.0',
  '3.6.0-alpha.0',
  '3.7.1',
  '4.4.0',
  '4.0.0',
  'unknown',
  '',
])('there is no advice about etcd %s', (version) => expect(versionAdvice(version)).toEqual([]));
