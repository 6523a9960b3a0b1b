import { setTimeout as sleep } from 'node:timers/promises';
import { type CronRun, type Lock, currentLock } from '../../../lib/index.js';
import { machineMs } from '../../machine-ms.js';
import type { Fate, Told } from './messages.js';

const WORK_MS = 5;
/** How often a section tells at most that its lock is valid. */
const TELL_EACH_MS = 25;
const block = new Int32Array(new SharedArrayBuffer(4));

/** What instrumented recipes call. */
export class Runtime {
  readonly #tell: (told: Told) => void;
  #armed: { readonly at: string; readonly fate: Fate } | undefined;
  #sections = 0;
  /** The call that the worker is at. */
  call: number | undefined;

  constructor(tell: (told: Told) => void) {
    this.#tell = tell;
  }

  arm(armed: { readonly at: string; readonly fate: Fate } | undefined): void {
    this.#armed = armed;
  }

  enter(path: string, args: ArrayLike<unknown>): Section {
    const given = Array.from(args);
    const lock = given.find(isLock) ?? currentLock();
    const run = given.find(isRun);
    const section = (this.#sections += 1);
    this.#tell({
      entered: {
        ...{ section, path, atMs: machineMs() },
        ...(lock && { key: lock.key, token: String(lock.fencingToken) }),
        ...(run && { tickMs: run.tick.getTime(), attempt: run.attempt, token: String(run.fencingToken) }),
        ...(this.call !== undefined && { call: this.call }),
      },
    });
    return new Section(section, {
      lock,
      call: this.call,
      tell: this.#tell,
      pass: (name) => this.#pass(name),
    });
  }

  /** Says whether the process was stopped here. */
  #pass(name: string): boolean {
    if (this.#armed?.at !== name) return false;
    const { fate } = this.#armed;
    this.#armed = undefined;
    this.#tell({ reached: name, fate, atMs: machineMs() });
    process.kill(process.pid, fate === 'kill' ? 'SIGKILL' : 'SIGSTOP');
    // The signal may reach another thread first.
    Atomics.wait(block, 0, 0, 20);
    this.#tell({ woke: name, atMs: machineMs() });
    return true;
  }
}

interface SectionParts {
  readonly lock: Lock | undefined;
  readonly call: number | undefined;
  readonly tell: (told: Told) => void;
  readonly pass: (name: string) => boolean;
}

/** One run of one function of a recipe. */
class Section {
  #toldAtMs = -Infinity;

  readonly #number: number;
  readonly #parts: SectionParts;

  constructor(number: number, parts: SectionParts) {
    this.#number = number;
    this.#parts = parts;
  }

  at(name: string): void {
    this.#look();
    if (this.#parts.pass(name)) this.#look();
  }

  /** The request was sent, and has perhaps arrived. */
  during<T>(name: string, pending: T): T {
    setImmediate(() => this.at(name));
    return pending;
  }

  result<T>(name: string, value: T): T {
    const { id } = Object(value) as { id?: unknown };
    const { call, tell } = this.#parts;
    if (value !== false) {
      tell({
        result: name,
        ...(call !== undefined && { call }),
        ...(typeof id === 'number' && { id }),
      });
    }
    return value;
  }

  resultAt<T>(name: string, after: string, value: T): T {
    this.at(after);
    return this.result(name, value);
  }

  /** What a recipe leaves to the user. */
  async work(): Promise<void> {
    await sleep(WORK_MS);
  }

  exit(): void {
    this.#look();
    this.#parts.tell({
      exited: this.#number,
      atMs: machineMs(),
      isValid: this.#parts.lock?.isValid() ?? false,
    });
  }

  #look(): void {
    // Before the question: what is valid afterwards was so then.
    const atMs = machineMs();
    if (atMs - this.#toldAtMs < TELL_EACH_MS || !this.#parts.lock?.isValid()) return;
    this.#toldAtMs = atMs;
    this.#parts.tell({ valid: this.#number, atMs });
  }
}

const isLock = (value: unknown): value is Lock =>
  typeof (value as Partial<Lock> | undefined)?.isValid === 'function';

const isRun = (value: unknown): value is CronRun =>
  (value as Partial<CronRun> | undefined)?.tick instanceof Date;
