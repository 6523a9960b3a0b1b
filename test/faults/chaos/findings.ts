import { findOverlaps } from './checkers/disjoint-intervals.js';
import { checkMutex } from './checkers/fenced-mutex.js';
import { type Attempt, checkRegister } from './checkers/fenced-register.js';
import type { StoredEntry } from './checkers/orphans.js';
import { checkSet } from './checkers/fenced-set.js';
import { findTokenOrderViolations } from './checkers/token-order.js';
import { findLostWakeUps } from './checkers/lost-wake-ups.js';
import { type Stop, findLateResults } from './checkers/late-results.js';
import { type Acquisition, type ListName, holdsOf } from './workers/history.js';
import type { InjectedFault } from './injected-fault.js';

/** All that is known at the end of an episode. */
export interface Evidence {
  readonly acquisitions: readonly Acquisition[];
  readonly faults: readonly InjectedFault[];
  /** Of the store: how long it keeps what a dead process leaves. */
  readonly sessionMs?: number | undefined;
  readonly attempts: readonly Attempt[];
  readonly lists: Readonly<Record<ListName, readonly (readonly string[])[]>>;
  readonly orphans: readonly StoredEntry[];
  readonly stops: readonly Stop[];
  /** Who was granted nothing although all was well. */
  readonly stuck: readonly string[];
  readonly crashes: readonly string[];
  readonly left: readonly string[];
}

/** What must never be. */
export interface Violation {
  readonly checker: Checker;
  readonly what: string;
}

export const CHECKERS = [
  'disjoint intervals',
  'fenced register',
  'fenced set',
  'fenced mutex',
  'tokens grow',
  'liveness',
  'orphans',
  'no crash',
] as const;

export type Checker = (typeof CHECKERS)[number];

export interface Findings {
  readonly violations: readonly Violation[];
  readonly faults: readonly InjectedFault[];
  readonly counts: Readonly<Record<string, number>>;
  /** Where the diaries are, if they are of interest. */
  readonly folder?: string;
}

/** Beyond the time that somebody wanted to wait: the answer of the store, and a busy machine. */
const LATE_MS = 5_000;
/** More than the pause between two looks and the time after which a dead one in front is passed over. */
const FREE_MS = 6_000;

/** Asks all checkers. */
export function checkEvidence(evidence: Evidence): Findings {
  const { acquisitions, faults, attempts, lists, orphans, stops, stuck, crashes, left, sessionMs } = evidence;
  const holds = holdsOf(acquisitions);
  const overlaps = findOverlaps(holds, faults);
  const unexcusedOverlaps = overlaps.filter(({ isExcused }) => !isExcused);
  const register = checkRegister(attempts, holds, faults);
  const set = checkSet(holds, 'fenced', lists.fenced);
  const unfenced = checkSet(holds, 'unfenced', lists.unfenced);
  const mutex = checkMutex(holds, faults);
  const tokens = findTokenOrderViolations(holds);
  const lateResults = findLateResults(acquisitions, { boundMs: LATE_MS, stops });
  const lostWakeUps = findLostWakeUps(acquisitions, { freeMs: FREE_MS, faults, stops, sessionMs });
  const violationsOf = (checker: Checker, all: readonly string[]) =>
    all.map((what): Violation => ({ checker, what }));
  return {
    faults,
    violations: [
      ...violationsOf(
        'disjoint intervals',
        unexcusedOverlaps.map(
          ({ key, earlier, later, byMs }) => `${key}: ${earlier.op} and ${later.op} for ${byMs} ms`,
        ),
      ),
      ...violationsOf(
        'fenced register',
        [...register.stale, ...register.wronglyRefused].map(
          ({ key, op, verb, wasAccepted }) =>
            `${key}: ${verb} of ${op} was ${wasAccepted ? 'accepted' : 'refused'}`,
        ),
      ),
      ...violationsOf('fenced set', [
        ...set.lost.map((item) => `${item} was acknowledged, and is lost`),
        ...set.duplicated.map((item) => `${item} is there more than once`),
      ]),
      ...violationsOf('fenced mutex', mutex.broken),
      ...violationsOf(
        'tokens grow',
        tokens.map(({ key, before, after }) => `${key}: ${before.op} before ${after.op}`),
      ),
      ...violationsOf('liveness', [
        ...stuck,
        ...lateResults.map(
          ({ acquisition, lateMs }) =>
            `${acquisition.op} for ${acquisition.key} was answered ${lateMs} ms late`,
        ),
        ...lostWakeUps.map(({ op, key }) => `${op} waited in vain for ${key}`),
      ]),
      ...violationsOf('orphans', [...orphans.map(({ key, what }) => `${what} of ${key}`), ...left]),
      ...violationsOf('no crash', crashes),
    ],
    counts: {
      asked: acquisitions.length,
      granted: holds.length,
      'timed out': acquisitions.filter(({ refused }) => refused === 'timeout').length,
      unavailable: acquisitions.filter(({ refused }) => refused === 'unavailable').length,
      lost: holds.filter(({ lostAtMs }) => lostAtMs !== undefined).length,
      'overlaps inside the guarantee': unexcusedOverlaps.length,
      'overlaps outside of it': overlaps.length - unexcusedOverlaps.length,
      'writes accepted': register.accepted,
      'stale writes refused': register.refused,
      'stale writes accepted': register.stale.length,
      'valid writes refused': register.wronglyRefused.length,
      'fenced adds': set.acknowledged,
      'fenced adds lost': set.lost.length + set.duplicated.length,
      'unfenced adds': unfenced.acknowledged,
      'unfenced adds lost': unfenced.lost.length,
      'histories of several holds checked': mutex.checked,
      'histories of one hold checked': mutex.heldOnce,
      'histories not linearizable': mutex.broken.length,
      'histories left out: outside the guarantee': mutex.leftOut,
      'tokens not grown': tokens.length,
      'stuck, answered late, or in vain': stuck.length + lateResults.length + lostWakeUps.length,
      'crashes and unhandled rejections': crashes.length,
      orphans: orphans.length + left.length,
    },
  };
}
