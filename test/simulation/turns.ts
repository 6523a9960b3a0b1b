import { Random, farApart } from '../random.js';

const { nextTick } = process;
const { setImmediate } = globalThis;
let present: Turns | undefined;

// Imported before the code under test, which keeps what it finds here when it is loaded.
process.nextTick = (run: (...args: never[]) => void, ...args: never[]) =>
  present ? present.tick(() => run(...args)) : nextTick(run, ...args);
globalThis.setImmediate = ((run: () => void) =>
  present ? present.immediate(run) : setImmediate(run)) as never;

/** What Node would do with the world as it is, taken by hand. */
interface Taken {
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
export class Turns {
  readonly #taken: Taken;
  #ticks: (() => void)[] = [];
  #immediates: (() => void)[] = [];
  /** For so many turns of the real event loop somebody may wait, one after the other, through `node:timers/promises`. */
  real = 0;

  constructor(seed: number) {
    this.#taken = { random: Math.random, stackTraceLimit: Error.stackTraceLimit };
    // One at a time: the present turns are those of the process.
    // eslint-disable-next-line @typescript-eslint/no-this-alias
    present = this;
    const random = new Random(farApart(~seed));
    Math.random = () => random.next();
    // Most errors of a schedule are part of it, and their stacks would take much of its time.
    Error.stackTraceLimit = 0;
  }

  /** Gives the world back to Node. */
  end(): void {
    present = undefined;
    Math.random = this.#taken.random;
    Error.stackTraceLimit = this.#taken.stackTraceLimit;
  }

  tick(run: () => void): void {
    this.#ticks.push(run);
  }

  immediate(run: () => void): void {
    this.#immediates.push(run);
  }

  /** Calls back when nothing is left to do at this moment. */
  settle(done: () => void): void {
    this.#settle(done, this.real);
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
