import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Worker, startProcess } from '../../cluster/start-worker.js';
import { until } from '../../support/until.js';
import type { History } from './history.js';
import type { Command, WorkerMessage, WorkerTask } from './messages.js';

/** One process that runs the recipe. */
export class RecipeWorker {
  readonly number: number;
  readonly #handle: Worker<WorkerMessage>;
  #isReady = false;
  #calls = 0;
  isIdle = false;
  /** Where it was stopped or killed last, and has not gone on since. */
  faultedAt: string | undefined;
  /** How it ended, if it did. */
  end: number | NodeJS.Signals | undefined;

  constructor(file: string, task: WorkerTask, onMessage: (workerMessage: WorkerMessage) => void) {
    this.#handle = startProcess<WorkerMessage>(file, { args: [JSON.stringify(task)] });
    this.number = this.#handle.process.pid!;
    this.#handle.process.on('message', (message) => {
      const workerMessage = message as WorkerMessage;
      // Kept in the history, so not here.
      this.#handle.messages.length = 0;
      if ('ready' in workerMessage) this.#isReady = true;
      if ('idle' in workerMessage) this.isIdle = true;
      if ('over' in workerMessage) this.#calls += 1;
      if ('reached' in workerMessage) this.faultedAt = workerMessage.reached;
      if ('woke' in workerMessage) this.faultedAt = undefined;
      onMessage(workerMessage);
    });
    void this.#handle.ended.then((end) => (this.end = end));
  }

  get isReady(): boolean {
    return this.#isReady;
  }

  /** Calls that it has ended. */
  get calls(): number {
    return this.#calls;
  }

  get isStopped(): boolean {
    return this.faultedAt !== undefined && this.isSuspended;
  }

  /** Also if the parent does not know of it yet: a process that stops itself may have sent less than it wrote. */
  get isSuspended(): boolean {
    if (this.end !== undefined) return false;
    try {
      return /^State:\tT/m.test(readFileSync(`/proc/${this.number}/status`, 'utf8'));
    } catch {
      return false;
    }
  }

  get ended(): Promise<unknown> {
    return this.#handle.ended;
  }

  send(command: Command): void {
    if ('round' in command) this.isIdle = false;
    // It may have died a moment ago, and its channel with it.
    if (this.#handle.process.connected) this.#handle.process.send(command, () => undefined);
  }

  goOn(): void {
    this.#handle.process.kill('SIGCONT');
  }

  kill(): void {
    this.#handle.process.kill('SIGKILL');
  }
}

/** The processes of a recipe, and one that looks at its data, if it keeps any. */
export class WorkerPool {
  readonly #file: string;
  readonly #task: Omit<WorkerTask, 'role'>;
  readonly #history: History;
  readonly #size: number;
  readonly #observer: RecipeWorker | undefined;
  workers: RecipeWorker[] = [];
  #contents: unknown;

  constructor(options: { code: string; size: number; task: Omit<WorkerTask, 'role'>; history: History }) {
    this.#file = join(options.code, 'test/faults/recipes/worker.js');
    this.#task = options.task;
    this.#size = options.size;
    this.#history = options.history;
    if (this.#task.resource === null) return;
    this.#observer = new RecipeWorker(this.#file, { ...this.#task, role: 'observer' }, (message) => {
      if ('contents' in message) this.#contents = message.contents;
    });
  }

  /** The tables are there before the first process looks for them. */
  async start(): Promise<void> {
    const observer = this.#observer;
    await until(() => !observer || observer.isReady || observer.end !== undefined);
    this.startMissing();
    await this.waitUntilReady();
  }

  /** Starts one for each that has died, and does not wait for it. */
  startMissing(): void {
    this.workers = this.workers.filter(({ end }) => end === undefined);
    while (this.workers.length < this.#size) {
      const worker: RecipeWorker = new RecipeWorker(
        this.#file,
        { ...this.#task, role: 'worker' },
        (message) => this.#history.record(worker.number, message),
      );
      this.workers.push(worker);
    }
  }

  async waitUntilReady(): Promise<void> {
    await until(() => this.workers.every(({ isReady, end }) => isReady || end !== undefined));
  }

  send(command: Command): void {
    for (const worker of this.workers) worker.send(command);
  }

  /** Settles when no call runs. */
  async pause(): Promise<void> {
    this.send({ pause: true });
    await until(() => {
      // Somebody may have come by just before he was disarmed.
      for (const worker of this.workers) if (worker.isSuspended) worker.goOn();
      return this.workers.every(({ isIdle, end }) => isIdle || end !== undefined);
    });
  }

  async read(round: number): Promise<unknown> {
    const observer = this.#observer;
    if (!observer) return undefined;
    this.#contents = undefined;
    observer.send({ read: round });
    await until(() => this.#contents !== undefined || observer.end !== undefined);
    return this.#contents;
  }

  async close(): Promise<void> {
    this.send({ close: true });
    await Promise.all(this.workers.map(({ ended }) => ended));
    this.#observer?.send({ close: true });
    await this.#observer?.ended;
  }

  /** However they are. */
  killAll(): void {
    for (const worker of [...this.workers, this.#observer]) if (worker?.end === undefined) worker?.kill();
  }
}
