import { overlapsOf } from './checkers/disjoint.js';
import { checkMutex } from './checkers/fenced-mutex.js';
import { type Attempt, checkRegister } from './checkers/fenced-register.js';
import type { Kept } from './checkers/orphans.js';
import { checkSet } from './checkers/set-add.js';
import { notGrowing } from './checkers/tokens-grow.js';
import { waitsInVain } from './checkers/waits-in-vain.js';
import { type Stop, endlessWaits } from './checkers/waits.js';
import { type Ask, type ListName, holdsOf } from './history.js';
import type { Strike } from './strike.js';

/** All that is known at the end of an episode. */
export interface Evidence {
  readonly asks: readonly Ask[];
  readonly strikes: readonly Strike[];
  readonly attempts: readonly Attempt[];
  readonly lists: Readonly<Record<ListName, readonly (readonly string[])[]>>;
  readonly orphans: readonly Kept[];
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
  readonly strikes: readonly Strike[];
  readonly counts: Readonly<Record<string, number>>;
  /** Where the diaries are, if they are of interest. */
  readonly folder?: string;
}

/** Beyond the time that somebody wanted to wait: the answer of the store, and a busy machine. */
const LATE_MS = 5_000;
/** More than the pause between two looks and the time after which a dead one in front is passed over. */
const FREE_MS = 6_000;

/** Asks all checkers. */
export function find(evidence: Evidence): Findings {
  const { asks, strikes, attempts, lists, orphans, stops, stuck, crashes, left } = evidence;
  const holds = holdsOf(asks);
  const overlaps = overlapsOf(holds, strikes);
  const broken = overlaps.filter(({ isExcused }) => !isExcused);
  const register = checkRegister(attempts, holds, strikes);
  const set = checkSet(holds, 'fenced', lists.fenced);
  const unfenced = checkSet(holds, 'unfenced', lists.unfenced);
  const mutex = checkMutex(holds, strikes);
  const tokens = notGrowing(holds);
  const endless = endlessWaits(asks, { boundMs: LATE_MS, stops });
  const inVain = waitsInVain(asks, { freeMs: FREE_MS, strikes, stops });
  const of = (checker: Checker, all: readonly string[]) => all.map((what): Violation => ({ checker, what }));
  return {
    strikes,
    violations: [
      ...of(
        'disjoint intervals',
        broken.map(({ key, earlier, later, byMs }) => `${key}: ${earlier.op} and ${later.op} for ${byMs} ms`),
      ),
      ...of(
        'fenced register',
        [...register.stale, ...register.wronglyRefused].map(
          ({ key, op, verb, wasAccepted }) =>
            `${key}: ${verb} of ${op} was ${wasAccepted ? 'accepted' : 'refused'}`,
        ),
      ),
      ...of('fenced set', [
        ...set.lost.map((item) => `${item} was acknowledged, and is lost`),
        ...set.doubled.map((item) => `${item} is there more than once`),
      ]),
      ...of('fenced mutex', mutex.broken),
      ...of(
        'tokens grow',
        tokens.map(({ key, before, after }) => `${key}: ${before.op} before ${after.op}`),
      ),
      ...of('liveness', [
        ...stuck,
        ...endless.map(({ ask, lateMs }) => `${ask.op} for ${ask.key} was answered ${lateMs} ms late`),
        ...inVain.map(({ op, key }) => `${op} waited in vain for ${key}`),
      ]),
      ...of('orphans', [...orphans.map(({ key, what }) => `${what} of ${key}`), ...left]),
      ...of('no crash', crashes),
    ],
    counts: {
      asked: asks.length,
      granted: holds.length,
      'timed out': asks.filter(({ refused }) => refused === 'timeout').length,
      unavailable: asks.filter(({ refused }) => refused === 'unavailable').length,
      lost: holds.filter(({ lostAtMs }) => lostAtMs !== undefined).length,
      'overlaps inside the guarantee': broken.length,
      'overlaps outside of it': overlaps.length - broken.length,
      'writes accepted': register.accepted,
      'stale writes refused': register.refused,
      'stale writes accepted': register.stale.length,
      'valid writes refused': register.wronglyRefused.length,
      'fenced adds': set.acknowledged,
      'fenced adds lost': set.lost.length + set.doubled.length,
      'unfenced adds': unfenced.acknowledged,
      'unfenced adds lost': unfenced.lost.length,
      'histories of several holds checked': mutex.checked,
      'histories of one hold checked': mutex.hadOnce,
      'histories not linearizable': mutex.broken.length,
      'histories left out: outside the guarantee': mutex.leftOut,
      'tokens not grown': tokens.length,
      'stuck, answered late, or in vain': stuck.length + endless.length + inVain.length,
      'crashes and unhandled rejections': crashes.length,
      orphans: orphans.length + left.length,
    },
  };
}
