import { type Timer, systemClock } from '../../../core/clock.js';
import { type Ballot, NodeCall, type NodeRequest } from './node-call.js';
import type { Hearer, Voter } from './voter.js';
import type { Voters } from './voters.js';

/** A request to all servers. */
export interface Ask extends NodeRequest {
  /** No further answer can change anything. */
  readonly isSettled: boolean;
  /** A server with a vote answered in time; its clock showed that time. */
  hear(voter: Voter, told: string, timeUs: string): void;
  /** What a server says that has no vote, or that answers too late for one. */
  hearAside(voter: Voter, told: string): void;
  /** The server was not asked, or nobody will know what became of that. */
  hearNothing(voter: Voter, wasAsked: boolean): void;
}

interface RoundParts {
  readonly voters: Voters;
  readonly asks: readonly Ask[];
  readonly ballot: Ballot;
  readonly limitMs: number;
  /** All that were asked have answered, or never will. */
  readonly onAllHeard?: () => void;
}

/**
 * One call to all servers at once. It is over as soon as nothing can change any more, and at its limit in any case: a
 * server that is silent until then counts as one that has answered.
 */
export class Round implements Hearer {
  readonly over: Promise<void>;
  readonly #asks: readonly Ask[];
  readonly #onAllHeard: (() => void) | undefined;
  readonly #untilMs: number;
  readonly #limit: Timer | undefined;
  #end = (): void => undefined;
  #isOver = false;
  /** Servers that still owe an answer. */
  #owing = 0;
  #wasAsked = false;

  constructor({ voters, asks, ballot, limitMs, onAllHeard }: RoundParts) {
    this.#asks = asks;
    this.#onAllHeard = onAllHeard;
    this.#untilMs = systemClock.monotonicMs() + limitMs;
    this.over = new Promise((resolve) => (this.#end = resolve));
    const call = new NodeCall(asks, ballot);
    for (const voter of voters.all) {
      if (voter.ask(call, this.#untilMs, this)) this.#owing |= voter.bit;
      else for (const ask of asks) ask.hearNothing(voter, false);
    }
    this.#wasAsked = this.#owing !== 0;
    if (this.#wasAsked) this.#limit = systemClock.after(limitMs, () => this.#giveUp(voters));
    else this.#finish();
  }

  /** Whether any server was asked. */
  get wasAsked(): boolean {
    return this.#wasAsked;
  }

  heard(voter: Voter, told: readonly string[]): void {
    const timeUs = told[0] ?? '';
    const counts = !this.#isOver && voter.hasVote && systemClock.monotonicMs() <= this.#untilMs;
    for (const [index, ask] of this.#asks.entries()) {
      const answer = told[index + 1] ?? '';
      if (counts) ask.hear(voter, answer, timeUs);
      else ask.hearAside(voter, answer);
    }
    this.#tick(voter);
  }

  failed(voter: Voter): void {
    for (const ask of this.#asks) ask.hearNothing(voter, true);
    this.#tick(voter);
  }

  #tick(voter: Voter): void {
    this.#owing &= ~voter.bit;
    if (!this.#isOver && (this.#owing === 0 || this.#asks.every(({ isSettled }) => isSettled)))
      this.#finish();
    if (this.#owing !== 0) return;
    this.#limit?.cancel();
    // After those who wait for its end have drawn their conclusions.
    void this.over.then(this.#onAllHeard);
  }

  #giveUp(voters: Voters): void {
    for (const voter of voters.all) if (this.#owing & voter.bit) voter.isOverdue();
    if (!this.#isOver) this.#finish();
  }

  #finish(): void {
    this.#isOver = true;
    this.#end();
  }
}
