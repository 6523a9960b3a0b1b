import { AsyncLocalStorage } from 'node:async_hooks';
import { shareAcrossCopies } from '../../../../core/package-copies.js';

interface ExclusiveRun {
  readonly scope: object;
  hasEnded: boolean;
}

/** For each scope, resolves when the last queued run has ended. */
const queueEnds = shareAcrossCopies('ends of turns', () => new WeakMap<object, Promise<void>>());
const contextRuns = shareAcrossCopies('turns', () => new AsyncLocalStorage<readonly ExclusiveRun[]>());

const openRuns = () => (contextRuns.getStore() ?? []).filter(({ hasEnded }) => !hasEnded);

/** Whether the current asynchronous context is part of a run of this scope. Another run would then wait for itself. */
export const isRunningExclusive = (scope: object): boolean => openRuns().some((run) => run.scope === scope);

/** Runs the work of one scope one after the other. `wait` may reject, which cancels the run while earlier ones still run. */
export async function runExclusive<T>(
  scope: object,
  work: () => Promise<T>,
  wait: (previous: Promise<void>) => Promise<void> = (previous) => previous,
): Promise<T> {
  const outer = openRuns();
  const previous = queueEnds.get(scope) ?? Promise.resolve();
  const run: ExclusiveRun = { scope, hasEnded: false };
  let end = (): void => undefined;
  const ended = new Promise<void>((resolve) => (end = resolve));
  queueEnds.set(
    scope,
    previous.then(() => ended),
  );
  try {
    await wait(previous);
    return await contextRuns.run([...outer, run], work);
  } finally {
    run.hasEnded = true;
    end();
  }
}
