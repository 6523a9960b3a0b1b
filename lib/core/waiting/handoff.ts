import type { AcquireParams } from './waiter.js';
import type { Grant } from '../leases/grant.js';

/**
 * A grant passes from caller to caller within the process so many times, and for so long, before the callers of other
 * processes have their turn. Each passing takes one fencing token of the grant. They are µs of the store's clock, so a
 * block must be shorter than a round trip in µs, or the tokens of a busy key would run ahead of the clock.
 */
export const MAX_LOCAL_HANDOFFS = 64;
/** With so many turns left the store is asked for as many more, which it gives as long as no other process waits. */
export const MORE_LOCAL_HANDOFFS = 32;
const MAX_LOCAL_HANDOFFS_MS = 200;

/** Whether the grant may pass on to a caller of the same process who wishes this. */
export function mayHandOff(grant: Grant, params: AcquireParams, nowMs: number): boolean {
  const heldMs = nowMs - grant.handoffsSinceMs;
  return (
    grant.isRenewed &&
    params.renew &&
    params.leaseMs === grant.leaseMs &&
    grant.remainingMs >= params.leaseMs / 2 &&
    grant.clocksAgree &&
    grant.tokensLeft > 0 &&
    heldMs < MAX_LOCAL_HANDOFFS_MS
  );
}

/** Whether it is time to ask the store for more turns, and nobody has yet. */
export const needsMoreTokens = (grant: Grant): boolean =>
  grant.tokensLeft <= MORE_LOCAL_HANDOFFS && !grant.isRequestingTokens;
