import type { LateVotes } from './late-votes.js';
import type { Ballot } from './node-call.js';
import type { Ask } from './round.js';
import type { Spread } from './spread.js';
import type { Voters } from './voters.js';

/** Whom a contest has to do with. */
export interface Quorum {
  readonly voters: Voters;
  readonly spread: Spread;
  readonly late: LateVotes;
}

/** How a round went. */
export interface RoundEnd {
  /** From 0. */
  readonly number: number;
  readonly ballot: Ballot;
  readonly sentAtMs: number;
  /** No round begins later than that. */
  readonly endsAtMs: number;
  /** How long each of them may take. */
  readonly limitMs: number;
  /** Whether any server was asked, in this round or before. */
  readonly wasAsked: boolean;
  /** The servers that there was no need to ask, in bits. */
  readonly unasked: number;
  /** Those that still owe an answer. */
  readonly owing: number;
}

/** A request that may take several rounds. */
export interface Contest extends Ask {
  /** The newest token that it met: the next ballot must be larger. Nothing, where it needs no ballot. */
  readonly newestUs?: number;
  /** After a round: how many ms to wait before the next one, or nothing if the answer is there. */
  conclude(end: RoundEnd): number | undefined;
}
