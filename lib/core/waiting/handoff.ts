import { isOfWriter } from '../holder.js';
import type { Grant } from '../leases/grant.js';
import type { HeldLock } from '../leases/held-lock.js';
import type { AcquireParams } from './waiter.js';

/**
 * A grant serves at most this many callers of the process in turn (local handoff), for at most `MAX_LOCAL_HANDOFFS_MS`.
 * Then the callers of other processes get their turn. Each handoff takes one fencing token of the grant. Tokens follow
 * the store's clock in µs, so a block must have fewer tokens than a round trip has µs. Otherwise the tokens of a busy
 * key would run ahead of the clock.
 *
 * @see Dice, Marathe, Shavit, "Lock Cohorting" (2012)
 */
export const MAX_LOCAL_HANDOFFS = 64;
/** When this many tokens are left, the store is asked for as many more. It adds them if no other process waits. */
const MORE_LOCAL_HANDOFFS = 32;
const MAX_LOCAL_HANDOFFS_MS = 200;

/** Whether a waiter with these parameters would ask the store for the same. */
export const wantsSameGrant = (params: AcquireParams, { leaseMs, request }: Grant): boolean =>
  params.leaseMs === leaseMs && (params.isOfWriter ?? false) === isOfWriter(request.holder);

/** Whether the lock may be handed over to a waiter of the same process with these parameters. */
export function mayHandOff({ grant, isRenewed }: HeldLock, params: AcquireParams): boolean {
  return (
    isRenewed &&
    params.renew &&
    wantsSameGrant(params, grant) &&
    grant.remainingMs >= params.leaseMs / 2 &&
    // An extension was for the caller that asked for it.
    !grant.isExtended &&
    grant.clocksAgree &&
    grant.tokensLeft > 0 &&
    grant.tokenAgeMs < MAX_LOCAL_HANDOFFS_MS
  );
}

/** Requests more tokens for further handoffs, if few are left. */
export function requestTokensIfFew(held: HeldLock): void {
  const { grant } = held;
  if (grant.tokensLeft > MORE_LOCAL_HANDOFFS || grant.isRequestingTokens) return;
  grant.onTokensRequested();
  void held.renew(grant.leaseMs, MORE_LOCAL_HANDOFFS);
}
