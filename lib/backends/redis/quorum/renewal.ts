import { type RenewAnswer, type RenewRequest } from '../../../core/backend.js';
import type { Contest, Quorum, RoundEnd } from './contest.js';
import type { Voter } from './voter.js';
import type { Voters } from './voters.js';

/** Renews a lock, which takes a majority that still holds it. */
export class Renewal implements Contest {
  readonly key: string;
  readonly holder: string;
  readonly leaseMs: number;
  readonly terms: string;
  answer: RenewAnswer | undefined;
  /** A server that holds it, and, in bits, those that do not, although they answer. */
  witness: Voter | undefined;
  strangers = 0;
  /** Servers that do not hold it yet, in bits. */
  readonly #unasked: number;
  readonly #voters: Voters;
  #renewed = 0;
  #lost = 0;

  constructor({ key, holder, leaseMs }: RenewRequest, terms: string, { voters, spread }: Quorum) {
    this.key = key;
    this.holder = holder;
    this.leaseMs = leaseMs;
    this.terms = terms;
    this.#voters = voters;
    this.#unasked = spread.unaskedOf(holder);
  }

  get servers(): number {
    return this.#voters.everyone;
  }

  get isSettled(): boolean {
    return this.#renewed >= this.#voters.needed || this.#lost > this.#voters.spare;
  }

  hear(voter: Voter, told: string): void {
    if (told === 'renewed') this.#renewed += 1;
    else this.#lost += 1;
    this.hearAside(voter, told);
  }

  hearAside(voter: Voter, told: string): void {
    if (told === 'renewed') this.witness ??= voter;
    else this.strangers |= voter.bit & ~this.#unasked;
  }

  hearNothing(): void {
    // Its lease runs on there, or it does not: the others decide.
  }

  conclude({ limitMs, wasAsked }: RoundEnd): undefined {
    if (this.#renewed >= this.#voters.needed) this.answer = { kind: 'renewed' };
    else if (this.#lost > this.#voters.spare) this.answer = { kind: 'lost' };
    else this.answer = this.#voters.doubt(limitMs, wasAsked);
  }
}
