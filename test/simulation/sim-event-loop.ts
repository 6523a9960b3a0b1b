import { Random, spreadSeed } from '../support/random.js';

const { nextTick } = process;
const { setImmediate } = globalThis;
let current: SimEventLoop | undefined;

// Imported before the code under test, which keeps what it finds here when it is loaded.
process.nextTick = (run: (...args: never[]) => void, ...args: never[]) =>
  current ? current.tick(() => run(...args)) : nextTick(run, ...args);
globalThis.setImmediate = ((run: () => void) =>
  current ? current.immediate(run) : setImmediate(run)) as never;

/** What Node would do with the world as it is, taken by hand. */
interface SavedGlobals {
  readonly random: typeof Math.random;
  readonly stackTraceLimit: number;
}

/** Cheaper to wait for than `queueMicrotask` is. */
const SETTLED = Promise.resolve();

/**
 * The turns of the event loop of simulated processes. What they hand to `process.nextTick` and `setImmediate` waits here
 * for its turn, and `Math.random` follows the seed, so that a schedule runs the same way each time, and without the event
 * loop, which would take most of its time.
 */
export class SimEventLoop {
  readonly #saved: SavedGlobals;
  #ticks: (() => void)[] = [];
  #immediates: (() => void)[] = [];
  /** For so many turns of the real event loop somebody may wait, one after the other, through `node:timers/promises`. */
  realTurns = 0;

  constructor(seed: number) {
    this.#saved = { random: Math.random, stackTraceLimit: Error.stackTraceLimit };
    // One at a time: the present turns are those of the process.
    // eslint-disable-next-line @typescript-eslint/no-this-alias
    current = this;
    const random = new Random(spreadSeed(~seed));
    Math.random = () => random.next();
    // Most errors of a schedule are part of it, and their stacks would take much of its time.
    Error.stackTraceLimit = 0;
  }

  /** Gives the world back to Node. */
  end(): void {
    current = undefined;
    Math.random = this.#saved.random;
    Error.stackTraceLimit = this.#saved.stackTraceLimit;
  }

  tick(run: () => void): void {
    this.#ticks.push(run);
  }

  immediate(run: () => void): void {
    this.#immediates.push(run);
  }

  /** Calls back when nothing is left to do at this moment. */
  settle(done: () => void): void {
    this.#settle(done, this.realTurns);
  }

  /** A microtask that asks for a tick is followed by that tick only when no other microtask is left. */
  #settle(done: () => void, realTurns: number): void {
    void SETTLED.then(() =>
      nextTick(() => {
        const due = this.#ticks.length > 0 ? this.#ticks : this.#immediates;
        if (due.length > 0) {
          if (due === this.#ticks) this.#ticks = [];
          else this.#immediates = [];
          for (const run of due) run();
          this.#settle(done, realTurns);
        } else if (realTurns > 0) setImmediate(() => this.#settle(done, realTurns - 1));
        else done();
      }),
    );
  }
}
