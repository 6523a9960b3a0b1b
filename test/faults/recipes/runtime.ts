import { setTimeout as sleep } from 'node:timers/promises';
import { type CronRun, type Lock, currentLock } from '../../../lib/index.js';
import { machineMs } from '../../support/machine-clock.js';
import type { FaultKind, WorkerMessage } from './messages.js';

const WORK_MS = 5;
/** How often a section tells at most that its lock is valid. */
const REPORT_EACH_MS = 25;
const block = new Int32Array(new SharedArrayBuffer(4));

/** What instrumented recipes call. */
export class Runtime {
  readonly #report: (message: WorkerMessage) => void;
  #armed: { readonly at: string; readonly fault: FaultKind } | undefined;
  #sections = 0;
  /** The call that the worker is at. */
  call: number | undefined;

  constructor(report: (message: WorkerMessage) => void) {
    this.#report = report;
  }

  arm(armed: { readonly at: string; readonly fault: FaultKind } | undefined): void {
    this.#armed = armed;
  }

  enter(path: string, args: ArrayLike<unknown>): Section {
    const given = Array.from(args);
    const lock = given.find(isLock) ?? currentLock();
    const run = given.find(isRun);
    const section = (this.#sections += 1);
    this.#report({
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
      report: this.#report,
      pass: (name) => this.#pass(name),
    });
  }

  /** Says whether the process was stopped here. */
  #pass(name: string): boolean {
    if (this.#armed?.at !== name) return false;
    const { fault } = this.#armed;
    this.#armed = undefined;
    this.#report({ reached: name, fault, atMs: machineMs() });
    process.kill(process.pid, fault === 'kill' ? 'SIGKILL' : 'SIGSTOP');
    // The signal may reach another thread first.
    Atomics.wait(block, 0, 0, 20);
    this.#report({ woke: name, atMs: machineMs() });
    return true;
  }
}

interface SectionOptions {
  readonly lock: Lock | undefined;
  readonly call: number | undefined;
  readonly report: (message: WorkerMessage) => void;
  readonly pass: (name: string) => boolean;
}

/** One run of one function of a recipe. */
class Section {
  #reportedAtMs = -Infinity;

  readonly #number: number;
  readonly #parts: SectionOptions;

  constructor(number: number, parts: SectionOptions) {
    this.#number = number;
    this.#parts = parts;
  }

  at(name: string): void {
    this.#recordValidity();
    if (this.#parts.pass(name)) this.#recordValidity();
  }

  /** The request was sent, and has perhaps arrived. */
  during<T>(name: string, pending: T): T {
    setImmediate(() => this.at(name));
    return pending;
  }

  result<T>(name: string, value: T): T {
    const { id } = Object(value) as { id?: unknown };
    const { call, report } = this.#parts;
    if (value !== false) {
      report({
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
    this.#recordValidity();
    this.#parts.report({
      exited: this.#number,
      atMs: machineMs(),
      isValid: this.#parts.lock?.isValid() ?? false,
    });
  }

  #recordValidity(): void {
    // Before the question: what is valid afterwards was so then.
    const atMs = machineMs();
    if (atMs - this.#reportedAtMs < REPORT_EACH_MS || !this.#parts.lock?.isValid()) return;
    this.#reportedAtMs = atMs;
    this.#parts.report({ valid: this.#number, atMs });
  }
}

const isLock = (value: unknown): value is Lock =>
  typeof (value as Partial<Lock> | undefined)?.isValid === 'function';

const isRun = (value: unknown): value is CronRun =>
  (value as Partial<CronRun> | undefined)?.tick instanceof Date;
