import assert from 'node:assert/strict';
import type { AcquireResult } from '../../core/backend-results.js';
import type { TickClaim, TickRefused, TickVerdict } from '../../core/tick.js';

/** The run of the newest claimed tick. `released` is a dead run: its lock is free and it has not ended. */
interface TickRun {
  readonly tickInMs: number;
  readonly attempt: 1 | 2;
  readonly state: 'held' | 'ended' | 'released';
}

/** What is decided about a claim. Times count from now. */
type Decision =
  | { readonly kind: 'granted'; readonly attempt: number }
  | { readonly kind: 'taken' }
  | {
      readonly kind: 'refused';
      readonly reason: TickRefused['reason'];
      readonly unfinishedInMs?: number;
      /** The refusal says when the lease of the run ends. */
      readonly mayRetry?: true;
    };

type ClaimLimits = Omit<TickClaim, 'tickMs' | 'cleanUp'>;

/** One claim of a tick, what happened to its key before, and the decision. */
export interface TickCase {
  readonly title: string;
  readonly before: 'nothing' | 'registration' | TickRun;
  readonly tickInMs: number;
  readonly limits: ClaimLimits;
  readonly expected: Decision;
}

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
export const RUN_LEASE_MS = 30_000;
/** Limits that no tick of a case exceeds. */
export const WIDE_LIMITS: ClaimLimits = {
  maxEarlyMs: 10 * HOUR_MS,
  staleAfterMs: 10 * HOUR_MS,
  maxAttempts: 3,
};
const LIMITS: ClaimLimits = { maxEarlyMs: HOUR_MS, staleAfterMs: HOUR_MS, maxAttempts: 3 };
/** A run that has just died is then dead for too long. */
const TOO_LONG_AGO = { staleAfterMs: -1_000 };

const granted = (attempt: number): Decision => ({ kind: 'granted', attempt });
const taken: Decision = { kind: 'taken' };
const refused = (reason: TickRefused['reason']): Decision => ({ kind: 'refused', reason });
const claimedUntilEnd: Decision = { kind: 'refused', reason: 'claimed', mayRetry: true };
const unfinished = (unfinishedInMs: number): Decision => ({
  ...{ kind: 'refused', reason: 'unfinished', unfinishedInMs },
});

const held = (tickInMs = 0, attempt: 1 | 2 = 1): TickRun => ({ tickInMs, attempt, state: 'held' });
const ended = (attempt: 1 | 2 = 1): TickRun => ({ tickInMs: 0, attempt, state: 'ended' });
const dead = (tickInMs = 0, attempt: 1 | 2 = 1): TickRun => ({ tickInMs, attempt, state: 'released' });

type Row = [string, TickCase['before'], number, Decision, Partial<ClaimLimits>?];

/**
 * The rule by which stores decide about ticks, as cases. `judgeTick`, the scripts of Redis and the SQL backends must
 * decide each of them alike. The columns: what it is, what happened before, the tick that is claimed, the decision, and
 * limits of the claim other than {@link LIMITS}.
 */
export const tickCases: readonly TickCase[] = (
  [
    ['a first tick is granted', 'nothing', 0, granted(1)],
    ['a tick ahead of the store is granted within the limit', 'nothing', HOUR_MS / 2, granted(1)],
    ['a tick farther ahead is early', 'nothing', 2 * HOUR_MS, refused('early')],
    ['a past tick is granted within the limit', 'nothing', -HOUR_MS / 2, granted(1)],
    ['a tick longer ago is stale', 'nothing', -2 * HOUR_MS, refused('stale')],

    ['a tick before a registration is claimed', 'registration', -MINUTE_MS, refused('claimed')],
    ['a tick after a registration is granted', 'registration', MINUTE_MS, granted(1)],
    ['a tick after a registration may be early', 'registration', 2 * HOUR_MS, refused('early')],

    ['a tick whose run has ended is claimed', ended(), 0, refused('claimed')],
    ['a tick before an ended run is claimed', ended(), -1, refused('claimed')],
    ['a tick after an ended run is granted', ended(), 1, granted(1)],
    ['a tick after an ended run may be early', ended(), 2 * HOUR_MS, refused('early')],
    ['a tick whose second run has ended is claimed', ended(2), 0, refused('claimed')],

    ['a tick whose run lasts is claimed until its lease ends', held(), 0, claimedUntilEnd],
    [
      'a tick whose run lasts is claimed for good if it may run once',
      held(),
      0,
      refused('claimed'),
      { maxAttempts: 1 },
    ],
    [
      'a tick whose last attempt lasts is claimed for good',
      held(0, 2),
      0,
      refused('claimed'),
      { maxAttempts: 2 },
    ],
    ['a tick before a run that lasts is claimed', held(), -1, refused('claimed')],
    ['a tick after a run that lasts is taken', held(), 1, taken],
    ['a tick after a run that lasts may be early', held(), 2 * HOUR_MS, refused('early')],
    ['a tick after a run that lasts may be stale', held(-3 * HOUR_MS), -2 * HOUR_MS, refused('stale')],
    ['a tick ahead of the store stays claimed', held(2 * HOUR_MS), HOUR_MS * 1.5, refused('claimed')],

    ['a tick whose run died is granted again', dead(), 0, granted(2)],
    ['a tick whose second run died is granted again', dead(0, 2), 0, granted(3)],
    ['a tick whose last attempt died is claimed', dead(0, 2), 0, refused('claimed'), { maxAttempts: 2 }],
    [
      'a tick whose run died is claimed if it may run once',
      dead(),
      0,
      refused('claimed'),
      { maxAttempts: 1 },
    ],
    ['a tick before a dead run is claimed', dead(), -1, refused('claimed')],
    ['a tick after a dead run waits for it', dead(), 1, unfinished(0)],
    ['a tick after a dead run waits for it even if it is early', dead(), 2 * HOUR_MS, unfinished(0)],
    ['a tick after a last attempt that died is granted', dead(0, 2), 1, granted(1), { maxAttempts: 2 }],
    ['a tick after a dead run is granted if ticks run once', dead(), 1, granted(1), { maxAttempts: 1 }],
    [
      'a tick whose run died too long ago is stale',
      dead(-MINUTE_MS),
      -MINUTE_MS,
      refused('stale'),
      TOO_LONG_AGO,
    ],
    [
      'a tick after a run that died too long ago is granted',
      dead(-MINUTE_MS),
      MINUTE_MS,
      granted(1),
      TOO_LONG_AGO,
    ],
    [
      'a tick after a run that died too long ago to be taken over is granted',
      dead(-MINUTE_MS),
      MINUTE_MS,
      granted(1),
      { takeoverWithinMs: -1_000 },
    ],
    [
      'a tick whose run died is granted again although a first run would be stale',
      dead(-MINUTE_MS),
      -MINUTE_MS,
      granted(2),
      { staleAfterMs: 0, takeoverWithinMs: HOUR_MS },
    ],
    ['a long run that dies is granted again', dead(-3 * HOUR_MS), -3 * HOUR_MS, granted(2)],
    ['a tick after a long run that died waits for it', dead(-3 * HOUR_MS), 0, unfinished(-3 * HOUR_MS)],
  ] satisfies Row[]
).map(([title, before, tickInMs, expected, limits]: Row) => ({
  ...{ title, before, tickInMs, expected },
  limits: { ...LIMITS, ...limits },
}));

/** Checks the decision about the case, with its times. `nowMs` is the time from which the ticks of the case count. */
export function checkDecision(
  { tickInMs, expected }: TickCase,
  result: AcquireResult | TickVerdict,
  nowMs: number,
): void {
  assert.deepEqual(decisionOf(result, nowMs), expected);
  const isAhead = (ms: number) => Math.abs(ms - tickInMs) < MINUTE_MS / 2;
  const isOfLease = (ms: number) => ms > 0 && ms <= RUN_LEASE_MS;
  if (result.kind === 'taken') assert(isOfLease(result.remainingMs), `got ${result.remainingMs} ms`);
  if (result.kind !== 'refused') return;
  assert(isAhead(result.aheadMs), `expected ${tickInMs} ms ahead, got ${result.aheadMs} ms`);
  assert(isOfLease(result.retryInMs ?? 1), `expected the rest of the lease, got ${result.retryInMs} ms`);
}

function decisionOf(result: AcquireResult | TickVerdict, nowMs: number): Decision {
  if (result.kind === 'unknown') throw result.cause;
  if (result.kind === 'taken') return taken;
  if (result.kind !== 'refused') return granted(result.attempt ?? 0);
  const { reason, unfinishedMs, retryInMs } = result;
  return {
    ...{ kind: 'refused', reason },
    ...(unfinishedMs !== undefined && { unfinishedInMs: unfinishedMs - nowMs }),
    ...(retryInMs !== undefined && { mayRetry: true }),
  };
}
