import type { Taken, TickClaim, TickRefused } from './backend.js';

/** What a store keeps of the ticks of a key. */
export interface ClaimedTick {
  /** The newest claimed one. */
  readonly tickMs: number;
  /** How often it was given out; 0 once a run of it has ended. */
  readonly attempt: number;
}

interface TickState {
  readonly claimed: ClaimedTick | undefined;
  /** What is left of the present lease; 0 or less if nobody holds the key. */
  readonly heldForMs: number;
  /** Until when, by the store's clock, the last run was surely on; 0 if that is not known. */
  readonly aliveUntilMs: number;
  /** The store's clock. */
  readonly nowMs: number;
}

/** What becomes of a claim: the tick is given out, or noted as registered, or refused. */
export type TickVerdict =
  | { readonly kind: 'grant'; readonly attempt: number }
  | { readonly kind: 'register'; readonly aheadMs: number }
  | TickRefused
  | Taken;

/**
 * Judges the claim of somebody who does not hold the key. A store must not let its state change between this and what it
 * does about it.
 */
export function judgeTick(
  { tickMs, maxEarlyMs, staleAfterMs, maxAttempts = 1, isRegistration }: TickClaim,
  { claimed, heldForMs, aliveUntilMs, nowMs }: TickState,
): TickVerdict {
  const aheadMs = tickMs - nowMs;
  const refused = (reason: TickRefused['reason'], more?: Partial<TickRefused>): TickRefused => ({
    ...{ kind: 'refused', reason, aheadMs },
    ...more,
  });
  const isHeld = heldForMs > 0;
  const isUnfinished = claimed !== undefined && claimed.attempt > 0 && claimed.attempt < maxAttempts;
  const diedRecently =
    claimed !== undefined && nowMs - Math.max(claimed.tickMs, aliveUntilMs) <= staleAfterMs;
  const isOtherTick = isRegistration || tickMs > (claimed?.tickMs ?? Infinity);
  if (isUnfinished && !isHeld && diedRecently && isOtherTick)
    return refused('unfinished', { unfinishedMs: claimed.tickMs });
  if (isRegistration) return claimed ? refused('claimed') : { kind: 'register', aheadMs };
  if (claimed && tickMs <= claimed.tickMs) {
    if (tickMs < claimed.tickMs || !isUnfinished) return refused('claimed');
    if (isHeld) return refused('claimed', { retryInMs: heldForMs });
    return diedRecently ? { kind: 'grant', attempt: claimed.attempt + 1 } : refused('stale');
  }
  if (aheadMs > maxEarlyMs) return refused('early');
  if (-aheadMs > staleAfterMs) return refused('stale');
  return isHeld ? { kind: 'taken', remainingMs: heldForMs } : { kind: 'grant', attempt: 1 };
}
