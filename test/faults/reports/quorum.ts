import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { FencedRegister } from '../../support/fencing/fenced-register.js';
import { machineMs } from '../../support/machine-clock.js';
import { PERSISTENT } from '../../services/redis-quorum.js';
import { until } from '../../support/until.js';
import { FAULTS, FaultyServer, withFaults, pickSome } from '../injection/faulty-server.js';
import { type Worker, startWorker } from '../../cluster/start-worker.js';

/**
 * Six processes contend for one key on five servers, of which any two are killed, frozen or slow in random turns; then three
 * are gone. Takes for how many seconds, and `forgetful` for servers that keep nothing. Prints what it saw.
 */
const seconds = Number(process.argv[2] ?? 60);
const isForgetful = process.argv[3] === 'forgetful';

interface WorkerMessage {
  readonly isReady?: true;
  readonly held?: { readonly fromMs: number; readonly toMs: number; readonly fencingToken: string };
  readonly failed?: {
    readonly name: string;
    readonly askedAtMs: number;
    readonly atMs: number;
    readonly message: string;
  };
}

interface Phase {
  readonly name: string;
  readonly fromMs: number;
  readonly toMs: number;
}

const LEASE_MS = 1_000;
const FAULT_MS = 3_000;
const CALM_MS = 2_000;
/** What two servers forgot must be over before two others may forget. */
const FORGETFUL_CALM_MS = 6_000;

const args = isForgetful ? [] : PERSISTENT;
const servers = await Promise.all(Array.from({ length: 5 }, () => FaultyServer.start(args)));
const quorum = { at: servers.map(({ url }) => url), maxLeaseMs: isForgetful ? 2_000 : 60_000 };
const plan = { store: { quorum }, namespace: randomUUID(), key: 'one', leaseMs: LEASE_MS, waitMs: 2_000 };
const workers = Array.from({ length: 6 }, () => startWorker<WorkerMessage>('contend-through', plan));
const phases: Phase[] = [];

async function phase(name: string, work: () => Promise<unknown>): Promise<void> {
  const fromMs = machineMs();
  await work();
  phases.push({ name, fromMs, toMs: machineMs() });
}

const messagesOf = <Name extends 'held' | 'failed'>(
  name: Name,
  all: readonly Worker<WorkerMessage>[] = workers,
) =>
  all.flatMap(({ messages }) => messages.flatMap((message) => message[name] ?? [])) as NonNullable<
    WorkerMessage[Name]
  >[];

await until(() => workers.every(({ messages }) => messages.length > 0));
await until(() => messagesOf('held').length > 0);
const endMs = machineMs() + seconds * 1_000;
while (machineMs() < endMs) {
  await phase('all well', () => sleep(isForgetful ? FORGETFUL_CALM_MS : CALM_MS));
  const faults = [0, 1].map(() => FAULTS[Math.floor(Math.random() * FAULTS.length)]!).sort();
  await phase(faults.join(' + '), () => withFaults(pickSome(servers, 2), { faults, forMs: FAULT_MS }));
}
await sleep(isForgetful ? FORGETFUL_CALM_MS : CALM_MS);

const outageRows: object[] = [];
for (const fault of ['killed', 'frozen'] as const) {
  const gone = pickSome(servers, 3);
  const goneAtMs = machineMs();
  await Promise.all(gone.map((server) => server.injectFault(fault)));
  const unavailable = () =>
    messagesOf('failed').filter(
      ({ name, askedAtMs }) => name === 'LockUnavailableError' && askedAtMs > goneAtMs,
    );
  await until(() => unavailable().length >= 6);
  const waits = unavailable().map(({ askedAtMs, atMs }) => atMs - askedAtMs);
  const [{ message } = { message: '' }] = unavailable();
  const backAtMs = machineMs();
  await Promise.all(gone.map((server) => server.heal()));
  const since = () => messagesOf('held').filter(({ fromMs }) => fromMs > backAtMs);
  await until(() => since().length > 0);
  outageRows.push({
    'three servers': fault,
    'LockUnavailableError after, at most, ms': Math.round(Math.max(...waits)),
    'served again, ms after they were mended': Math.round(
      Math.min(...since().map(({ fromMs }) => fromMs)) - backAtMs,
    ),
    message,
  });
  await sleep(isForgetful ? FORGETFUL_CALM_MS : CALM_MS);
}

for (const { process } of workers) process.send('end');
const ends = await Promise.all(workers.map(({ ended }) => ended));
for (const server of servers) await server.stop();

const held = messagesOf('held').sort((one, other) => one.fromMs - other.fromMs);
const overlaps = held.slice(1).filter((next, index) => next.fromMs <= held[index]!.toMs).length;
const register = new FencedRegister();
const backwards = held.filter(({ fencingToken }) => !register.write(BigInt(fencingToken))).length;
const names = [...new Set(phases.map(({ name }) => name))].sort();
console.table(
  names.map((name) => {
    const its = phases.filter((one) => one.name === name);
    const within = (atMs: number) => its.some(({ fromMs, toMs }) => fromMs <= atMs && atMs < toMs);
    const inSeconds = its.reduce((sum, { fromMs, toMs }) => sum + toMs - fromMs, 0) / 1_000;
    const failed = (kind: string) =>
      messagesOf('failed').filter(({ name: its, atMs }) => its === kind && within(atMs)).length;
    return {
      phase: name,
      seconds: Math.round(inSeconds),
      'held/s': Math.round(held.filter(({ fromMs }) => within(fromMs)).length / inSeconds),
      unavailable: failed('LockUnavailableError'),
      'timed out': failed('LockTimeoutError'),
      lost: failed('LockLostError'),
    };
  }),
);
console.table(outageRows.map(({ message: _, ...row }: { message?: string }) => row));
for (const { message } of outageRows as { message: string }[]) console.log(message);
console.table({
  'times held': held.length,
  'held by two at once': overlaps,
  'fencing tokens that went back': backwards,
  'processes that ended badly': ends.filter((end) => end !== 0).length,
});
