import type { Taken, TickClaim, TickRefused } from './backend.js';

/** What a store keeps about the ticks of a key. */
export interface ClaimedTick {
  /** The newest claimed tick: the watermark. */
  readonly tickMs: number;
  /** How often the tick was granted; 0 once a run of it has ended. */
  readonly attempt: number;
}

interface TickState {
  readonly claimed: ClaimedTick | undefined;
  /** The rest of the current lease; 0 or less if the key is free. */
  readonly heldForMs: number;
  /** The time, by the store's clock, until which the last run was certainly alive; 0 if that is not known. */
  readonly aliveUntilMs: number;
  /** The store's clock. */
  readonly nowMs: number;
}

/** The decision about a claim: the tick is granted, the job is registered, or the claim is refused. */
export type TickVerdict =
  | { readonly kind: 'grant'; readonly attempt: number }
  | { readonly kind: 'register'; readonly aheadMs: number }
  | TickRefused
  | Taken;

/**
 * Decides about a claim whose holder does not hold the key. A store must apply the decision before the state can
 * change.
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
