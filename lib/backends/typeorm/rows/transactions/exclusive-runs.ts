import { AsyncLocalStorage } from 'node:async_hooks';
import { shareAcrossCopies } from '../../../../core/package-copies.js';

interface ExclusiveRun {
  readonly scope: object;
  hasEnded: boolean;
}

/** Settles when the last one of those that have queued for the scope has ended. */
const queueEnds = shareAcrossCopies('ends of turns', () => new WeakMap<object, Promise<void>>());
const contextRuns = shareAcrossCopies('turns', () => new AsyncLocalStorage<readonly ExclusiveRun[]>());

const openRuns = () => (contextRuns.getStore() ?? []).filter(({ hasEnded }) => !hasEnded);

/** Whether this asynchronous chain is part of work that has its turn, so that it would wait for itself. */
export const isRunningExclusive = (scope: object): boolean => openRuns().some((run) => run.scope === scope);

/** Runs pieces of work of a scope one after the other. `wait` may give up the wait for those before by an error. */
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
