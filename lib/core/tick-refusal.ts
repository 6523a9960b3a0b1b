import type { TickClaim, TickRefused } from './backend.js';

interface TickState {
  /** The newest claimed tick of the key. */
  readonly claimedMs: number | undefined;
  /** The store's clock. */
  readonly nowMs: number;
}

/** Why a tick cannot be claimed, whoever holds the key; `undefined` if nothing is against it. */
export function tickRefusal(tick: TickClaim, { claimedMs, nowMs }: TickState): TickRefused | undefined {
  const aheadMs = tick.tickMs - nowMs;
  const refused = (reason: TickRefused['reason']): TickRefused => ({ kind: 'refused', reason, aheadMs });
  if (claimedMs !== undefined && tick.tickMs <= claimedMs) return refused('claimed');
  if (aheadMs > tick.maxEarlyMs) return refused('early');
  if (-aheadMs > tick.staleAfterMs) return refused('stale');
  return undefined;
}
