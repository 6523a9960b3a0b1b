import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Worker, startProcess } from '../../../cluster/start-worker.js';
import { machineMs } from '../../../support/machine-clock.js';
import type { Stop } from '../checkers/late-results.js';
import { type ProcessHistory, readLog } from './history.js';
import { FaultProxy } from '../../injection/fault-proxy.js';
import type { Random } from '../../../support/random.js';
import type { WorkerStatus, WorkerCommand, Task } from './worker-messages.js';
import { until } from '../../../support/until.js';
import type { StoreUnderTest } from '../stores/store-under-test.js';

interface WorkerPoolOptions {
  readonly store: StoreUnderTest;
  readonly random: Random;
  /** Where the compiled code is. */
  readonly code: string;
  /** Where the workers write. */
  readonly folder: string;
  readonly namespace: string;
  readonly resourcePort: number;
  readonly size: number;
  readonly callers: number;
  readonly keys: number;
}

/** A process that wants locks. */
interface ChaosWorker {
  readonly name: string;
  readonly logFile: string;
  readonly handle: Worker<WorkerStatus>;
  killedAtMs?: number;
  closedAtMs?: number;
  hasEnded: boolean;
}

/** Where one process works, and after its end the next one, with a network of its own. */
export interface WorkerSlot {
  readonly number: number;
  readonly networks: readonly FaultProxy[];
  worker: ChaosWorker;
}

/** Processes that have started and wait for a seat. */
const SPARES = 2;
/** An application gets so long to close. */
const CLOSE_MS = 30_000;

/** The processes that want locks, always as many. */
export class WorkerPool {
  readonly stops: Stop[] = [];
  /** Processes that ended although nobody wanted it, or did not although they should. */
  readonly crashes: string[] = [];
  /** What closed applications left in their process. */
  readonly leftovers: string[] = [];
  readonly slots: WorkerSlot[] = [];
  readonly #parts: WorkerPoolOptions;
  readonly #workers: ChaosWorker[] = [];
  readonly #closings = new Set<Promise<void>>();
  readonly #spares: Worker<WorkerStatus>[];
  #isEnding = false;

  private constructor(parts: WorkerPoolOptions) {
    this.#parts = parts;
    this.#spares = Array.from({ length: SPARES }, () => this.#start());
  }

  static async start(parts: WorkerPoolOptions): Promise<WorkerPool> {
    const pool = new WorkerPool(parts);
    for (let number = 1; number <= parts.size; number += 1) {
      const ports = parts.store.servers.map(({ service }) => service.port);
      const networks = await Promise.all(ports.map((port) => FaultProxy.to(port)));
      const slot = { number, networks } as unknown as WorkerSlot;
      slot.worker = pool.#assignNext(slot);
      pool.slots.push(slot);
    }
    return pool;
  }

  get histories(): ProcessHistory[] {
    return this.#workers.map(({ name, logFile, killedAtMs, closedAtMs }) => ({
      worker: name,
      killedAtMs,
      closedAtMs,
      entries: readLog(logFile),
    }));
  }

  /** All processes have begun to work, or will not. */
  get isReady(): boolean {
    return this.slots.every(({ worker }) => hasBegun(worker));
  }

  /** Kills the process, and lets another one take its seat. */
  async kill(slot: WorkerSlot): Promise<void> {
    const { worker } = slot;
    worker.killedAtMs = machineMs();
    worker.hasEnded = true;
    slot.worker = this.#assignNext(slot);
    worker.handle.process.kill('SIGKILL');
    await worker.handle.ended;
  }

  /** Closes the application, while another one takes its seat. */
  replace(slot: WorkerSlot): void {
    const { worker } = slot;
    worker.closedAtMs = machineMs();
    slot.worker = this.#assignNext(slot);
    const closing = this.#close(worker).finally(() => this.#closings.delete(closing));
    this.#closings.add(closing);
  }

  async stop({ worker }: WorkerSlot, forMs: number): Promise<void> {
    const fromMs = machineMs();
    worker.handle.process.kill('SIGSTOP');
    await sleep(forMs);
    worker.handle.process.kill('SIGCONT');
    this.stops.push({ worker: worker.name, fromMs, toMs: machineMs() });
  }

  async block({ worker }: WorkerSlot, forMs: number): Promise<void> {
    const fromMs = machineMs();
    sendCommand(worker, { order: 'block', forMs });
    await sleep(forMs);
    // When it begins is not known so exactly.
    this.stops.push({ worker: worker.name, fromMs, toMs: machineMs() + forMs });
  }

  shiftDate({ worker }: WorkerSlot, byMs: number): void {
    sendCommand(worker, { order: 'shift-date', byMs });
  }

  /** Lets all applications close. */
  async end(): Promise<void> {
    this.#isEnding = true;
    await Promise.all([...this.#closings, ...this.slots.map(({ worker }) => this.#close(worker))]);
  }

  /** Ends what is left of it. */
  async clear(): Promise<void> {
    this.#isEnding = true;
    for (const handle of [...this.#spares, ...this.#workers.map(({ handle }) => handle)]) {
      handle.process.kill('SIGKILL');
      await handle.ended;
    }
    await Promise.all(this.slots.flatMap(({ networks }) => networks.map((network) => network.close())));
  }

  #start(): Worker<WorkerStatus> {
    return startProcess<WorkerStatus>(join(this.#parts.code, 'test/faults/chaos/workers/worker.js'));
  }

  /** Processes are started before they are needed. */
  #assignNext(slot: WorkerSlot): ChaosWorker {
    const { number, networks } = slot;
    const { store, namespace, resourcePort, callers, keys, folder, random } = this.#parts;
    this.#spares.push(this.#start());
    const handle = this.#spares.shift()!;
    const name = `${number}.${this.#workers.length + 1}`;
    const worker: ChaosWorker = { name, logFile: join(folder, `${name}.jsonl`), handle, hasEnded: false };
    const workerStore = store.storeAt(networks.map(({ port }) => port));
    const task: Task = {
      ...{ name, store: workerStore, namespace, resourcePort, callers, keys },
      seed: random.seed(),
      logFile: worker.logFile,
    };
    // It is read also if its process is killed before it opened it.
    writeFileSync(worker.logFile, '');
    sendCommand(worker, { order: 'begin', task });
    void handle.ended.then((how) => {
      if (worker.hasEnded || this.#isEnding) return;
      this.crashes.push(`${name} ended with ${how}`);
      worker.hasEnded = true;
      slot.worker = this.#assignNext(slot);
    });
    this.#workers.push(worker);
    return worker;
  }

  async #close(worker: ChaosWorker): Promise<void> {
    const { name, handle } = worker;
    worker.hasEnded = true;
    sendCommand(worker, { order: 'end' });
    const timeIsOver = new AbortController();
    const inTime = await Promise.race([
      handle.ended,
      timeToClose(worker, timeIsOver.signal).catch(() => undefined),
    ]);
    timeIsOver.abort();
    const [closed] = handle.messages.flatMap((news) => (news.news === 'closed' ? news : []));
    if (closed) this.leftovers.push(...closed.left.map((what) => `${name}: ${what}`));
    if (inTime === 0) return;
    if (inTime !== undefined) this.crashes.push(`${name} ended with ${inTime} when it closed`);
    else {
      this.leftovers.push(`${name}: ${closed ? 'closed, and the process went on' : 'did not close'}`);
      worker.killedAtMs = machineMs();
      handle.process.kill('SIGKILL');
      await handle.ended;
    }
  }
}

/** It works, or will not. */
const hasBegun = ({ handle }: ChaosWorker) => handle.messages.length > 0 || !handle.process.connected;

/** A process that has not begun yet cannot close, and an overloaded machine may take half a minute to start it. */
async function timeToClose(worker: ChaosWorker, signal: AbortSignal): Promise<undefined> {
  await until(() => hasBegun(worker));
  await sleep(CLOSE_MS, undefined, { signal });
}

function sendCommand({ handle }: ChaosWorker, command: WorkerCommand): void {
  // One that was killed a moment ago hears nothing.
  if (handle.process.connected) handle.process.send(command, () => undefined);
}
