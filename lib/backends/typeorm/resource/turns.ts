import { AsyncLocalStorage } from 'node:async_hooks';
import { shared } from '../../../core/copies.js';

interface Turn {
  readonly scope: object;
  isOver: boolean;
}

/** Settles when the last one of those that have queued for the scope has ended. */
const ends = shared('ends of turns', () => new WeakMap<object, Promise<void>>());
const turns = shared('turns', () => new AsyncLocalStorage<readonly Turn[]>());

const openTurns = () => (turns.getStore() ?? []).filter(({ isOver }) => !isOver);

/** Whether this asynchronous chain is part of work that has its turn, so that it would wait for itself. */
export const isInTurn = (scope: object): boolean => openTurns().some((turn) => turn.scope === scope);

/** Runs pieces of work of a scope one after the other. `wait` may give up the wait for those before by an error. */
export async function inTurn<T>(
  scope: object,
  work: () => Promise<T>,
  wait: (before: Promise<void>) => Promise<void> = (before) => before,
): Promise<T> {
  const outer = openTurns();
  const before = ends.get(scope) ?? Promise.resolve();
  const turn: Turn = { scope, isOver: false };
  let end = (): void => undefined;
  const ended = new Promise<void>((resolve) => (end = resolve));
  ends.set(
    scope,
    before.then(() => ended),
  );
  try {
    await wait(before);
    return await turns.run([...outer, turn], work);
  } finally {
    turn.isOver = true;
    end();
  }
}
