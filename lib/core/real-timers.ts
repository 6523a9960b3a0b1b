import { performance as realPerformance } from 'node:perf_hooks';
import timers from 'node:timers';

/**
 * The timers and clocks of Node, as they were when this file was loaded.
 *
 * A lease runs in real time. The fake timers of Jest, Vitest, Sinon and `node:test` replace the globals later and would
 * stop every lock. If they replaced them before this file was loaded, the functions come from modules that they do not
 * change.
 */
interface Faked {
  /** Left by `@sinonjs/fake-timers`, which Jest, Vitest and Sinon use. */
  readonly clock?: unknown;
  /** Left by the legacy fake timers of Jest. */
  readonly _isMockFunction?: unknown;
}

const unlessFaked = <Real>(present: Real, other: Real): Real => {
  // jsdom under Jest has no setImmediate.
  if (present === undefined) return other;
  const { clock, _isMockFunction } = present as Faked;
  return clock === undefined && _isMockFunction === undefined ? present : other;
};

export const setTimeout = unlessFaked(globalThis.setTimeout, timers.setTimeout);
export const clearTimeout = unlessFaked(globalThis.clearTimeout, timers.clearTimeout);
export const setImmediate = unlessFaked(globalThis.setImmediate, timers.setImmediate);

export const nextTick: (run: () => void) => void = unlessFaked(process.nextTick, setImmediate);

export const queueMicrotask = unlessFaked(
  globalThis.queueMicrotask,
  (run) => void Promise.resolve().then(run),
);

/** Grows at the speed of real time and never jumps. */
export const monotonicMs = realPerformance.now.bind(realPerformance);

/** The wall clock, in UTC milliseconds. */
export const wallMs: () => number = unlessFaked(Date, undefined)?.now ?? wallMsSinceStart;

/** Resolves in the next turn of the event loop. */
export const nextTurn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

/** Resolves after `ms`, and keeps the process alive until then. */
export const delay = (ms: number): Promise<void> => new Promise((resolve) => void setTimeout(resolve, ms));

function wallMsSinceStart(): number {
  return Math.floor(realPerformance.timeOrigin + monotonicMs());
}
