import type { Held } from '../contender.js';

/** A lock in the hand, of a peer that only runs work under locks: taken when the work begins, released by ending it. */
export function heldByUsing(using: (work: () => Promise<void>) => Promise<unknown>): Promise<Held> {
  return new Promise((resolve, reject) => {
    let end = (): void => undefined;
    const ended = new Promise<void>((resolveEnded) => (end = resolveEnded));
    const used = using(() => {
      resolve({
        release: () => {
          end();
          return used;
        },
      });
      return ended;
    });
    used.catch(reject);
  });
}
