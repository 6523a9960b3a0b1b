import { AsyncLocalStorage } from 'node:async_hooks';
import { shareAcrossCopies } from '../../../../core/package-copies.js';

interface ExclusiveRun {
  readonly scope: object;
  hasEnded: boolean;
}

interface Queue {
  /** How many runs have not ended. */
  size: number;
  /** Resolves when the last queued run has ended. */
  end: Promise<void>;
}

const queues = shareAcrossCopies('queues of exclusive runs', () => new WeakMap<object, Queue>());
const contextRuns = shareAcrossCopies('turns', () => new AsyncLocalStorage<readonly ExclusiveRun[]>());

const openRuns = () => (contextRuns.getStore() ?? []).filter(({ hasEnded }) => !hasEnded);

/** Whether the current asynchronous context is part of a run of this scope. Another run would then wait for itself. */
export const isRunningExclusive = (scope: object): boolean => openRuns().some((run) => run.scope === scope);

/** Whether a run of this scope would start at once. */
export const isIdle = (scope: object): boolean => (queues.get(scope)?.size ?? 0) === 0;

/**
 * Runs the work of one scope one after the other. A run ends with its work, or earlier if the work calls `end`. `wait` is called
 * if earlier runs have not ended; it may reject, which cancels the run. Without earlier runs the work starts at once: TypeORM changes the state of a query runner before its first `await`, and
 * other calls of the same turn of the event loop decide by it.
 */
export async function runExclusive<T>(
  scope: object,
  work: (end: () => void) => Promise<T>,
  wait: (previous: Promise<void>) => Promise<void> = (previous) => previous,
): Promise<T> {
  const outer = openRuns();
  const queue = queues.get(scope) ?? { size: 0, end: Promise.resolve() };
  queues.set(scope, queue);
  const run: ExclusiveRun = { scope, hasEnded: false };
  let reportEnd = (): void => undefined;
  const ended = new Promise<void>((resolve) => (reportEnd = resolve));
  const end = () => {
    if (run.hasEnded) return;
    run.hasEnded = true;
    queue.size -= 1;
    reportEnd();
  };
  const { size, end: previous } = queue;
  queue.size += 1;
  queue.end = previous.then(() => ended);
  try {
    if (size > 0) await wait(previous);
    return await contextRuns.run([...outer, run], work, end);
  } finally {
    end();
  }
}
