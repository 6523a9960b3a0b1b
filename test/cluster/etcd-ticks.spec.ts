import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { etcdBackend } from '../../lib/backends/etcd/index.js';
import type { RequestOp } from '../../lib/backends/etcd/rpc/messages.js';
import { keysOf, read, remove } from '../../lib/backends/etcd/rpc/operations.js';
import type { TickRequest } from '../../lib/core/backend.js';
import type { AcquireResult } from '../../lib/core/backend-results.js';
import { systemClock } from '../../lib/core/clock.js';
import { delay } from '../../lib/core/real-timers.js';
import { createAcquireRequest, createAcquisitionId } from '../../lib/testing/laws/law.js';
import { startEtcd } from '../services/etcd.js';
import type { Service } from '../services/service.js';
import { etcdKeys, onEtcd } from '../support/etcd.js';
import { openEtcdParts } from '../support/etcd-parts.js';
import { until } from '../support/until.js';

const TIMEOUT_MS = 10_000;
const LEASE_MS = 60_000;
const HOUR_MS = 3_600_000;
/** What is left of an earlier claim ends after this time. */
const REST_MS = 300;
let server: Service;
const opened: { close(): unknown }[] = [];

const open = () => {
  const parts = openEtcdParts(server.url);
  opened.push(parts);
  return parts;
};

const claimOf = (key: string): TickRequest => {
  const tick = { tickMs: Date.now(), maxEarlyMs: HOUR_MS, staleAfterMs: HOUR_MS };
  return createAcquireRequest(createAcquisitionId(key), { leaseMs: LEASE_MS, tick }) as TickRequest;
};

/** An earlier claim with an unknown outcome, which has had no effect. */
const leaveInDoubt = async (
  { names, sessions, ownEntries }: ReturnType<typeof open>,
  { key, holder }: TickRequest,
) => {
  const name = names.nameOf(key, holder);
  const session = sessions.get(LEASE_MS);
  await session.prepare(LEASE_MS, TIMEOUT_MS);
  ownEntries.set({
    ...{ name, key, session, createRevision: 0n, isHeld: true, leaseMs: LEASE_MS, isInDoubt: true },
    endsAtMs: systemClock.monotonicMs() + REST_MS,
  });
  return name;
};

const isInStore = async (name: Buffer) => {
  const { responses } = await onEtcd(server.url, [read({ key: name })]);
  return keysOf(responses[0]).length > 0;
};

const hasClaim = (operations: readonly RequestOp[]) => operations.some((one) => one.request_txn);

beforeAll(async () => {
  server = await startEtcd();
});
afterEach(async () => {
  for (const one of opened.splice(0)) await one.close();
});
afterAll(() => server.stop());

it('a claim waits for the deletion of what is left of an earlier one, which would end it', async () => {
  const parts = open();
  const request = claimOf('deleted');
  let result: Promise<AcquireResult> | undefined;
  parts.connection.onTransaction = async ({ success }) => {
    if (result || !success[0]?.request_delete_range) return;
    result = parts.ticks.claim(request, TIMEOUT_MS);
    // Without the wait, the claim is granted while the deletion is on its way.
    await Promise.race([result, delay(REST_MS)]);
  };
  const name = await leaveInDoubt(parts, request);
  await until(() => result !== undefined && !parts.ownEntries.isEnding(name));
  expect(await result).toMatchObject({ kind: 'granted' });
  expect(await isInStore(name)).toBe(true);
});

it('a claim waits for the deletion also if what is left ends while the claim is prepared', async () => {
  const parts = open();
  const request = claimOf('prepared');
  const name = await leaveInDoubt(parts, request);
  let release: () => void = () => undefined;
  parts.connection.holds = { method: 'KV.Txn', until: new Promise<void>((resolve) => (release = resolve)) };
  const result = parts.ticks.claim(request, TIMEOUT_MS);
  // The claim has read that the key is free.
  await until(() => !parts.connection.holds);
  let isDeleting = false;
  parts.connection.onTransaction = async ({ success }) => {
    if (isDeleting || !success[0]?.request_delete_range) return;
    isDeleting = true;
    release();
    await Promise.race([result, delay(REST_MS)]);
  };
  await until(() => isDeleting && !parts.ownEntries.isEnding(name));
  expect(await result).toMatchObject({ kind: 'granted' });
  expect(await isInStore(name)).toBe(true);
});

it('what is left of an earlier claim is not deleted while the next one is on its way', async () => {
  const parts = open();
  const request = claimOf('on its way');
  const name = await leaveInDoubt(parts, request);
  let release: () => void = () => undefined;
  parts.connection.onTransaction = async ({ success }) => {
    if (!hasClaim(success)) return;
    parts.connection.onTransaction = undefined;
    parts.connection.holds = { method: 'KV.Txn', until: new Promise<void>((resolve) => (release = resolve)) };
  };
  const result = parts.ticks.claim(request, TIMEOUT_MS);
  await until(() => isInStore(name));
  // It ends meanwhile. Nothing else shows that it would not be deleted.
  await delay(2 * REST_MS);
  release();
  expect(await result).toMatchObject({ kind: 'granted' });
  expect(await isInStore(name)).toBe(true);
});

it('a claim is refused if its tick was claimed, and the run ended, while it was on its way', async () => {
  const [parts, rival] = [open(), etcdBackend({ hosts: server.url })];
  opened.push(rival);
  const request = claimOf('overtaken');
  const overtaking = { ...request, ...createAcquisitionId(request.key) };
  let isOvertaken = false;
  parts.connection.onTransaction = async ({ success }) => {
    if (isOvertaken || !hasClaim(success)) return;
    isOvertaken = true;
    const { acquire } = await rival.execute({ acquire: [overtaking] }, TIMEOUT_MS);
    expect(acquire).toMatchObject([{ kind: 'granted' }]);
    await rival.execute({ release: [{ ...overtaking, hasEnded: true }] }, TIMEOUT_MS);
  };
  expect(await parts.ticks.claim(request, TIMEOUT_MS)).toMatchObject({ kind: 'refused', reason: 'claimed' });
  expect(isOvertaken).toBe(true);
});

it('a job is paused and resumed although the session of the process has ended', async () => {
  const backend = etcdBackend({ hosts: server.url });
  opened.push(backend);
  const endSessions = () =>
    onEtcd(server.url, [remove({ key: etcdKeys.session(''), range_end: Buffer.of(0xff) })]);
  await backend.setPaused('job', true, TIMEOUT_MS);
  await endSessions();
  await backend.setPaused('job', false, TIMEOUT_MS);
  expect((await backend.readTicks('job', TIMEOUT_MS)).isPaused).toBeUndefined();
  await endSessions();
  await backend.setPaused('job', true, TIMEOUT_MS);
  expect((await backend.readTicks('job', TIMEOUT_MS)).isPaused).toBe(true);
});
