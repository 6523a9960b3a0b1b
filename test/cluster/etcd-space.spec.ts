import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { Metadata, status } from '@grpc/grpc-js';
import { etcdBackend } from '../../lib/backends/etcd/index.js';
import { toReadableError } from '../../lib/backends/etcd/rpc/etcd-errors.js';
import { keysOf, put, read } from '../../lib/backends/etcd/rpc/operations.js';
import type { AcquireResult } from '../../lib/core/backend-results.js';
import { systemClock } from '../../lib/core/clock.js';
import { LockUnavailableError } from '../../lib/core/errors.js';
import type { LockHandle } from '../../lib/core/leases/lock-handle.js';
import { delay } from '../../lib/core/real-timers.js';
import { createAcquireRequest, createAcquisitionId } from '../../lib/testing/laws/law.js';
import { etcdctl, startEtcd } from '../services/etcd.js';
import type { Service } from '../services/service.js';
import { bareLocks } from '../support/bare-locks.js';
import { etcdKeys, hostOf, onEtcd } from '../support/etcd.js';
import { openEtcdParts } from '../support/etcd-parts.js';
import { until } from '../support/until.js';

const TIMEOUT_MS = 10_000;
const SHORT_LEASE_MS = 2_000;
const QUOTA_BYTES = 4 * 1024 * 1024;
const LARGE = Buffer.alloc(256 * 1024, 'x');
let server: Service;
const opened: { close(): unknown }[] = [];

const open = () => {
  const backend = etcdBackend({ hosts: server.url });
  opened.push(backend);
  return backend;
};

const run = (...args: string[]) => etcdctl(`--endpoints=${hostOf(server.url)}`, ...args);

/** Writes until etcd raises the NOSPACE alarm. */
const fill = async () => {
  const write = () => onEtcd(server.url, [put(Buffer.from('large'), LARGE)]);
  const writeAll = async () => {
    for (;;) await write();
  };
  await expect(writeAll()).rejects.toThrow(/space quota/);
  await until(async () => (await run('alarm', 'list')).includes('NOSPACE'));
};

/** As the message of the error says. */
const makeSpace = async () => {
  const { header } = await onEtcd(server.url, [read({ key: Buffer.from('large') })]);
  await run('compact', header.revision);
  await run('defrag');
  await run('alarm', 'disarm');
};

beforeAll(async () => {
  server = await startEtcd({ args: [`--quota-backend-bytes=${QUOTA_BYTES}`] });
});
afterEach(async () => {
  for (const one of opened.splice(0)) await one.close();
});
afterAll(() => server.stop());

it('a full etcd keeps held locks, refuses a new process with a clear error, and serves it when it has space again', async () => {
  const [ours, theirs] = [open(), open()];
  const held = createAcquisitionId('held');
  const request = createAcquireRequest(held, { leaseMs: SHORT_LEASE_MS });
  expect((await ours.execute({ acquire: [request] }, TIMEOUT_MS)).acquire[0]?.kind).toBe('granted');
  const renew = async () =>
    (await ours.execute({ renew: [{ ...held, leaseMs: SHORT_LEASE_MS }] }, TIMEOUT_MS)).renew[0]?.kind;
  const renewUntil = async (isOver: () => boolean) => {
    while (!isOver()) {
      expect(await renew()).toBe('renewed');
      await delay(200);
    }
  };
  const withJob = bareLocks({ backend: ours, namespace: 'space' });
  const tick = { tickMs: Date.now(), maxEarlyMs: 60_000, staleAfterMs: 60_000 };
  const job = (await withJob.jobs.claimTick('job', { tick })) as LockHandle;
  let isFull = false;
  await Promise.all([renewUntil(() => isFull), fill().finally(() => (isFull = true))]);

  const locks = bareLocks({ backend: theirs, namespace: 'space' });
  const refused = locks.acquire('other', { waitMs: 0 }).catch((error: unknown) => error);
  // Only a lock that outlives the lease which it had in etcd shows that this lease was renewed.
  const endsAtMs = systemClock.monotonicMs() + 3 * SHORT_LEASE_MS;
  await renewUntil(() => systemClock.monotonicMs() >= endsAtMs);
  const refusal: unknown = await refused;
  expect(refusal).toBeInstanceOf(LockUnavailableError);
  expect((refusal as LockUnavailableError).message).toMatch(/space quota .* disarm the NOSPACE alarm/);

  expect((await theirs.inspect('held', TIMEOUT_MS))?.holder).toBe(held.holder);
  expect((await ours.execute({ release: [held] }, TIMEOUT_MS)).release[0]?.kind).toBe('released');

  // Otherwise it would be run again.
  job.endRun();
  expect(await job.release()).toBe(true);
  expect(await withJob.jobs.claimTick('job', { tick })).toMatchObject({ kind: 'refused', reason: 'claimed' });

  await makeSpace();
  await (await locks.acquire('other')).release();
}, 60_000);

it('a grant that etcd refused for its space, although it had taken effect, ends after its lease', async () => {
  const parts = openEtcdParts(server.url);
  opened.push(parts);
  const acquisition = createAcquisitionId('refused');
  const request = createAcquireRequest(acquisition, { leaseMs: SHORT_LEASE_MS });
  await parts.sessions.get(SHORT_LEASE_MS).prepare(SHORT_LEASE_MS, TIMEOUT_MS);
  const details = 'etcdserver: mvcc: database space exceeded';
  const error = Object.assign(new Error(), {
    code: status.RESOURCE_EXHAUSTED,
    details,
    metadata: new Metadata(),
  });
  const toFail = { error, timeoutMs: TIMEOUT_MS, host: '', keyPrefix: '' };
  parts.connection.failsWith = toReadableError(toFail);
  let result: AcquireResult | undefined;
  await parts.acquisitions.acquire([{ index: 0, request }], TIMEOUT_MS, (_, one) => (result = one));
  expect(result?.kind).toBe('unknown');
  expect(result).not.toHaveProperty('wasSent');
  const isInStore = async () => {
    const { responses } = await onEtcd(server.url, [read(etcdKeys.locksOf('refused'))]);
    return keysOf(responses[0]).length > 0;
  };
  expect(await isInStore()).toBe(true);
  // Its session lives on, so only the process itself can delete it.
  await until(async () => !(await isInStore()));
  expect(parts.sessions.get(SHORT_LEASE_MS).isOver).toBe(false);
});
