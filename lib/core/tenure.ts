import type { Wish } from './asker.js';
import type { Grant } from './grant.js';

/**
 * A grant passes from caller to caller within the process so many times, and for so long, before the callers of other
 * processes have their turn. Each passing takes one fencing token of the grant. They are µs of the store's clock, so a
 * block must be shorter than a round trip in µs, or the tokens of a busy key would run ahead of the clock.
 */
export const MOST_TURNS = 64;
/** With so many turns left the store is asked for as many more, which it gives as long as no other process waits. */
export const MORE_TURNS = 32;
const LONGEST_TENURE_MS = 200;

/** Whether the grant may pass on to a caller of the same process who wishes this. */
export function mayPassOn(grant: Grant, wish: Wish, nowMs: number): boolean {
  const heldMs = nowMs - grant.tenureFromMs;
  return (
    grant.isRenewed &&
    wish.renew &&
    wish.leaseMs === grant.leaseMs &&
    grant.remainingMs >= wish.leaseMs / 2 &&
    grant.doClocksAgree &&
    grant.tokensLeft > 0 &&
    heldMs < LONGEST_TENURE_MS
  );
}

/** Whether it is time to ask the store for more turns, and nobody has yet. */
export const isTenureEnding = (grant: Grant): boolean =>
  grant.tokensLeft <= MORE_TURNS && !grant.isTenureAsked;
