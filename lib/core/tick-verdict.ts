import type { Taken, TickClaim, TickRefused, TickState } from './backend.js';

/** The decision about a claim: the tick is granted, or the claim is refused. */
export type TickVerdict = { readonly kind: 'grant'; readonly attempt: number } | TickRefused | Taken;

/**
 * Decides about a claim whose holder does not hold the key. A store must apply the decision before the state can
 * change.
 */
export function judgeTick(claim: TickClaim, state: TickState): TickVerdict {
  const { tickMs, maxEarlyMs, staleAfterMs } = claim;
  const { claimed, heldForMs, nowMs } = state;
  const aheadMs = tickMs - nowMs;
  const refused = (reason: TickRefused['reason'], more?: Partial<TickRefused>): TickRefused => ({
    ...{ kind: 'refused', reason, aheadMs },
    ...more,
  });
  const unfinishedMs = findDeadTick(claim, state);
  if (unfinishedMs !== undefined && tickMs > unfinishedMs) return refused('unfinished', { unfinishedMs });
  if (claimed && tickMs <= claimed.tickMs) {
    if (tickMs < claimed.tickMs || !isUnfinished(claim, state)) return refused('claimed');
    if (heldForMs > 0) return refused('claimed', { retryInMs: heldForMs });
    return unfinishedMs === undefined ? refused('stale') : { kind: 'grant', attempt: claimed.attempt + 1 };
  }
  if (aheadMs > maxEarlyMs) return refused('early');
  if (-aheadMs > staleAfterMs) return refused('stale');
  return heldForMs > 0 ? { kind: 'taken', remainingMs: heldForMs } : { kind: 'grant', attempt: 1 };
}

/** Which claims may take a run over. */
type TakeoverLimits = Pick<TickClaim, 'staleAfterMs' | 'maxAttempts'>;

/** The tick of a dead run that may be taken over within these limits; `undefined` if there is none. */
export function findDeadTick(limits: TakeoverLimits, state: TickState): number | undefined {
  const { claimed, heldForMs, aliveUntilMs, nowMs } = state;
  if (!claimed || heldForMs > 0 || !isUnfinished(limits, state)) return undefined;
  const diedRecently = nowMs - Math.max(claimed.tickMs, aliveUntilMs) <= limits.staleAfterMs;
  return diedRecently ? claimed.tickMs : undefined;
}

/** Whether no run of the newest claimed tick has ended and another attempt is allowed. */
const isUnfinished = ({ maxAttempts = 1 }: TakeoverLimits, { claimed }: TickState): boolean =>
  claimed !== undefined && claimed.attempt > 0 && claimed.attempt < maxAttempts;
