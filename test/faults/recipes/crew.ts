import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Worker, startProcess } from '../../cluster/start-worker.js';
import { until } from '../../until.js';
import type { History } from './history.js';
import type { Command, Told, WorkerTask } from './messages.js';

/** One process that runs the recipe. */
export class Member {
  readonly number: number;
  readonly #worker: Worker<Told>;
  #isReady = false;
  #calls = 0;
  isIdle = false;
  /** Where it was stopped or killed last, and has not gone on since. */
  struckAt: string | undefined;
  /** How it ended, if it did. */
  end: number | NodeJS.Signals | undefined;

  constructor(file: string, task: WorkerTask, hear: (told: Told) => void) {
    this.#worker = startProcess<Told>(file, { args: [JSON.stringify(task)] });
    this.number = this.#worker.process.pid!;
    this.#worker.process.on('message', (message) => {
      const told = message as Told;
      // Kept in the history, so not here.
      this.#worker.messages.length = 0;
      if ('ready' in told) this.#isReady = true;
      if ('idle' in told) this.isIdle = true;
      if ('over' in told) this.#calls += 1;
      if ('reached' in told) this.struckAt = told.reached;
      if ('woke' in told) this.struckAt = undefined;
      hear(told);
    });
    void this.#worker.ended.then((end) => (this.end = end));
  }

  get isReady(): boolean {
    return this.#isReady;
  }

  /** Calls that it has ended. */
  get calls(): number {
    return this.#calls;
  }

  get isStopped(): boolean {
    if (this.struckAt === undefined || this.end !== undefined) return false;
    try {
      return /^State:\tT/m.test(readFileSync(`/proc/${this.number}/status`, 'utf8'));
    } catch {
      return false;
    }
  }

  get ended(): Promise<unknown> {
    return this.#worker.ended;
  }

  tell(command: Command): void {
    if ('round' in command) this.isIdle = false;
    if (this.#worker.process.connected) this.#worker.process.send(command);
  }

  goOn(): void {
    this.#worker.process.kill('SIGCONT');
  }

  kill(): void {
    this.#worker.process.kill('SIGKILL');
  }
}

/** The processes of a recipe, and one that looks at its data, if it keeps any. */
export class Crew {
  readonly #file: string;
  readonly #task: Omit<WorkerTask, 'role'>;
  readonly #history: History;
  readonly #size: number;
  readonly #observer: Member | undefined;
  members: Member[] = [];
  #contents: unknown;

  constructor(options: { code: string; size: number; task: Omit<WorkerTask, 'role'>; history: History }) {
    this.#file = join(options.code, 'test/faults/recipes/worker.js');
    this.#task = options.task;
    this.#size = options.size;
    this.#history = options.history;
    if (this.#task.resource === null) return;
    this.#observer = new Member(this.#file, { ...this.#task, role: 'observer' }, (told) => {
      if ('contents' in told) this.#contents = told.contents;
    });
  }

  /** The tables are there before the first process looks for them. */
  async start(): Promise<void> {
    const observer = this.#observer;
    await until(() => !observer || observer.isReady || observer.end !== undefined);
    this.fill();
    await this.ready();
  }

  /** Starts one for each that has died, and does not wait for it. */
  fill(): void {
    this.members = this.members.filter(({ end }) => end === undefined);
    while (this.members.length < this.#size) {
      const member: Member = new Member(this.#file, { ...this.#task, role: 'worker' }, (told) =>
        this.#history.note(member.number, told),
      );
      this.members.push(member);
    }
  }

  async ready(): Promise<void> {
    await until(() => this.members.every(({ isReady, end }) => isReady || end !== undefined));
  }

  tell(command: Command): void {
    for (const member of this.members) member.tell(command);
  }

  /** Settles when no call runs. */
  async pause(): Promise<void> {
    this.tell({ pause: true });
    await until(() => {
      // Somebody may have come by just before he was disarmed.
      for (const member of this.members) if (member.isStopped) member.goOn();
      return this.members.every(({ isIdle, end }) => isIdle || end !== undefined);
    });
  }

  async read(round: number): Promise<unknown> {
    const observer = this.#observer;
    if (!observer) return undefined;
    this.#contents = undefined;
    observer.tell({ read: round });
    await until(() => this.#contents !== undefined || observer.end !== undefined);
    return this.#contents;
  }

  async close(): Promise<void> {
    this.tell({ close: true });
    await Promise.all(this.members.map(({ ended }) => ended));
    this.#observer?.tell({ close: true });
    await this.#observer?.ended;
  }

  /** However they are. */
  killAll(): void {
    for (const member of [...this.members, this.#observer]) if (member?.end === undefined) member?.kill();
  }
}
