import type { ReleaseAnswer, ReleaseRequest } from '../../../core/backend.js';
import type { Contest, Quorum, RoundEnd } from './contest.js';
import { SURE_RELEASE } from './node-call.js';
import type { Voter } from './voter.js';
import { type Voters, countOf } from './voters.js';

/** Gives a lock back on all servers: it is answered when a majority has, and the others are asked until they have, too. */
export class GivingBack implements Contest {
  readonly key: string;
  readonly holder: string;
  readonly terms: string;
  readonly servers: number;
  answer: ReleaseAnswer | undefined;
  readonly #voters: Voters;
  readonly #hasEnded: boolean;
  /** So many servers know nothing of it. */
  readonly #unasked: number;
  #released = 0;
  #gone = 0;
  /** So many have noted the end of the run. */
  #noted = 0;
  /** So many will not say. */
  #silent = 0;
  #othersWait = false;
  /** Whoever still owes an answer will not be waited for. */
  #isOver = false;

  constructor({ key, holder, hasEnded }: ReleaseRequest, { voters, spread, late }: Quorum) {
    const unasked = spread.take(holder);
    this.key = key;
    this.holder = holder;
    this.terms = hasEnded ? 'finish' : unasked === 0 ? 'release' : SURE_RELEASE;
    this.servers = voters.everyone & ~unasked;
    this.#voters = voters;
    this.#hasEnded = hasEnded === true;
    this.#unasked = countOf(unasked);
    const owing = late.take(holder);
    if (owing === 0) return;
    const again = { key, holder, terms: hasEnded ? 'finish' : 'release' };
    for (const voter of voters.all) if (owing & voter.bit) voter.giveBackLater(again);
  }

  get isSettled(): boolean {
    return this.#answer !== undefined || this.#isComplete;
  }

  hear(voter: Voter, told: string): void {
    if ((this.servers & voter.bit) === 0) return;
    if (told === 'gone') this.#gone += 1;
    else this.#released += 1;
    if (told.startsWith('noted')) this.#noted += 1;
    if (told.endsWith(' waiting')) this.#othersWait = true;
  }

  /** It was given back there, too, but that does not count. */
  hearAside(voter: Voter): void {
    if (this.servers & voter.bit) this.#silent += 1;
  }

  hearNothing(voter: Voter, wasAsked: boolean): void {
    if ((this.servers & voter.bit) === 0) return;
    this.#silent += 1;
    if (wasAsked) voter.giveBackLater(this);
    else voter.giveBack(this);
  }

  conclude({ limitMs, wasAsked }: RoundEnd): undefined {
    this.#isOver = true;
    this.answer = this.#answer ?? this.#voters.doubt(limitMs, wasAsked);
  }

  /** All have said what they will. */
  get #isComplete(): boolean {
    return this.#isOver || this.#known + this.#silent === this.#voters.all.length;
  }

  /** Of so many it is known that they do not hold it any more. */
  get #known(): number {
    return this.#unasked + this.#released + this.#gone;
  }

  get #answer(): ReleaseAnswer | undefined {
    const { all, needed, spare } = this.#voters;
    if (this.#gone > spare) return { kind: 'gone' };
    // A server that has not heard of the end could have the run taken over.
    if (this.#hasEnded && this.#noted < needed && this.#known < all.length) return undefined;
    if (this.#released === 0 || this.#known < needed) return undefined;
    // Of a lock that has lapsed, or is somebody else's by now, a minority may have something left.
    if (this.#released + this.#unasked < needed && !this.#isComplete) return undefined;
    // Servers that were away when it was granted, or that have forgotten it, do not make it one that was not there.
    return { kind: 'released', ...(this.#othersWait && { othersWait: true }) };
  }
}
