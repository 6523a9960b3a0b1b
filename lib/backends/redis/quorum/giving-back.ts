import type { ReleaseAnswer, ReleaseRequest } from '../../../core/backend.js';
import type { Contest, RoundEnd } from './contest.js';
import type { Voter } from './voter.js';
import type { Voters } from './voters.js';

/** Gives a lock back on all servers: it is answered when a majority has, and the others are asked until they have, too. */
export class GivingBack implements Contest {
  readonly key: string;
  readonly holder: string;
  readonly terms: string;
  readonly newestUs = 0;
  answer: ReleaseAnswer | undefined;
  readonly #voters: Voters;
  readonly #hasEnded: boolean;
  #released = 0;
  #gone = 0;
  /** So many have noted the end of the run. */
  #noted = 0;
  #othersWait = false;

  constructor({ key, holder, hasEnded }: ReleaseRequest, voters: Voters) {
    this.key = key;
    this.holder = holder;
    this.#hasEnded = hasEnded === true;
    this.terms = hasEnded ? 'finish' : 'release';
    this.#voters = voters;
  }

  get isSettled(): boolean {
    const isDone = this.#hasEnded ? this.#noted : this.#released;
    return isDone >= this.#voters.needed || this.#gone > this.#voters.spare;
  }

  hear(_voter: Voter, told: string): void {
    if (told === 'gone') this.#gone += 1;
    else this.#released += 1;
    if (told.startsWith('noted')) this.#noted += 1;
    if (told.endsWith(' waiting')) this.#othersWait = true;
  }

  hearAside(): void {
    // It was given back there, too.
  }

  hearNothing(voter: Voter, wasAsked: boolean): void {
    if (wasAsked) voter.giveBackLater(this);
    else voter.giveBack(this);
  }

  conclude({ limitMs, wasAsked }: RoundEnd): undefined {
    this.answer = this.#answer() ?? this.#voters.doubt(limitMs, wasAsked);
  }

  #answer(): ReleaseAnswer | undefined {
    const heard = this.#released + this.#gone;
    if (heard < this.#voters.needed) return undefined;
    // A server that has not heard of the end could have the run taken over.
    if (this.#hasEnded && !this.isSettled && heard < this.#voters.all.length) return undefined;
    // Servers that were away when it was granted, or that have forgotten it, do not make it one that was not there.
    if (this.#released === 0 || this.#gone > this.#voters.spare) return { kind: 'gone' };
    return { kind: 'released', ...(this.#othersWait && { othersWait: true }) };
  }
}
