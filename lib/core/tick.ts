/**
 * A claim of a tick, which is a planned time of a schedule. The store keeps three things with the key, also while the
 * key is free: the newest claimed tick (the watermark), how often that tick was granted, and whether one of its runs
 * has ended.
 */
export interface TickClaim {
  /** UTC milliseconds. */
  readonly tickMs: number;
  /** How long before the tick, by the store's clock, it may be claimed. */
  readonly maxEarlyMs: number;
  /** How long after the tick, by the store's clock, it may be claimed. */
  readonly staleAfterMs: number;
  /**
   * How long after the end of a dead run's lease, by the store's clock, another run may take its tick over.
   *
   * @default staleAfterMs
   */
  readonly takeoverWithinMs?: number;
  /**
   * How often the tick may be granted while none of its runs has ended. With more than 1, a newer tick is refused as
   * `unfinished` as long as an older one may be taken over.
   *
   * @default 1
   */
  readonly maxAttempts?: number;
  /** The key exists for this tick only, so the store may delete it later, together with older keys of the job. */
  readonly cleanUp?: KeyCleanUp;
}

/** The keys that a store may delete when it grants a tick. */
export interface KeyCleanUp {
  /** How long from the claim the store must keep the key of this tick. A renewal that ends the lease later adds as much. */
  readonly afterMs: number;
  /**
   * The first of the older keys of the same job that may be deleted if they are free; keys are compared byte by byte.
   */
  readonly fromKey: string;
  /** The end of that range. This key itself is kept. */
  readonly beforeKey: string;
}

/** What a store keeps about the ticks of a key, at one moment. */
export interface TickState {
  /** The ticks of the key are paused: no claim is granted. */
  readonly isPaused?: boolean;
  /** UTC milliseconds of the store's clock. */
  readonly nowMs: number;
  /** The newest claimed tick; `undefined` if none was claimed. */
  readonly claimed: ClaimedTick | undefined;
  /** The rest of the current lease; 0 or less if the key is free. */
  readonly heldForMs: number;
  /** The time, by the store's clock, until which the last run was certainly alive; 0 if that is not known. */
  readonly aliveUntilMs: number;
}

/** The newest claimed tick of a key: the watermark. */
export interface ClaimedTick {
  readonly tickMs: number;
  /** How often the tick was granted; 0 once a run of it has ended, and for a watermark that a registration has set. */
  readonly attempt: number;
}

/** The tick cannot be claimed. */
export interface TickRefused {
  readonly kind: 'refused';
  /**
   * - `claimed`: this tick or a later one was claimed before.
   * - `early`: the tick is more than `maxEarlyMs` ahead of the store's clock.
   * - `stale`: the tick is more than `staleAfterMs` ago.
   * - `unfinished`: the run of an earlier tick died and must be taken over first.
   * - `paused`: the ticks of the key are paused.
   */
  readonly reason: 'claimed' | 'early' | 'stale' | 'unfinished' | 'paused';
  /** How far the tick is ahead of the store's clock; negative once it has passed. */
  readonly aheadMs: number;
  /** With `unfinished`: the tick of the dead run. */
  readonly unfinishedMs?: number;
  /** When the lease of the current run of this same tick ends, if the tick may be taken over then. */
  readonly retryInMs?: number;
}

/**
 * The decision about a claim: the tick is granted, or refused, or the key is `taken` by the run of another tick, so this tick would
 * overlap it.
 */
export type TickVerdict =
  | { readonly kind: 'grant'; readonly attempt: number }
  | TickRefused
  | { readonly kind: 'taken'; readonly remainingMs: number };

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
  if (state.isPaused) return refused('paused');
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

/** A store that keeps the pause of a key in the attempt of its newest tick adds this number to it. */
export const PAUSED_ATTEMPT = 500;

/** The newest tick of a paused key when it is resumed: the ticks of the pause count as claimed. */
export function resumedTick({ claimed, heldForMs, nowMs }: TickState): ClaimedTick {
  // A run in progress may still end, or die and be taken over.
  if (claimed && heldForMs > 0) return claimed;
  return { tickMs: Math.max(Math.floor(nowMs), claimed?.tickMs ?? 0), attempt: 0 };
}

/** Which claims may take a run over. */
type TakeoverLimits = Pick<TickClaim, 'staleAfterMs' | 'takeoverWithinMs' | 'maxAttempts'>;

/** The tick of a dead run that may be taken over within these limits; `undefined` if there is none. */
export function findDeadTick(limits: TakeoverLimits, state: TickState): number | undefined {
  const { claimed, heldForMs, aliveUntilMs, nowMs } = state;
  if (!claimed || heldForMs > 0 || !isUnfinished(limits, state)) return undefined;
  const { staleAfterMs, takeoverWithinMs = staleAfterMs } = limits;
  const diedRecently = nowMs - Math.max(claimed.tickMs, aliveUntilMs) <= takeoverWithinMs;
  return diedRecently ? claimed.tickMs : undefined;
}

/** Whether no run of the newest claimed tick has ended and another attempt is allowed. */
const isUnfinished = ({ maxAttempts = 1 }: TakeoverLimits, { claimed }: TickState): boolean =>
  claimed !== undefined && claimed.attempt > 0 && claimed.attempt < maxAttempts;
