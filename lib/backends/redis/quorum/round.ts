import { type Timer, systemClock } from '../../../core/clock.js';
import { setImmediate } from '../../../core/real-time.js';
import { type Ballot, NodeCall, type NodeRequest, type Told } from './node-call.js';
import type { Hearer, Voter } from './voter.js';
import type { Voters } from './voters.js';

/** A request to servers of the quorum. */
export interface Ask extends NodeRequest {
  /** Those to begin with, in bits: the others are asked as well if these leave it open. */
  readonly servers: number;
  /** No further answer can change anything. */
  readonly isSettled: boolean;
  /** A server with a vote answered in time; its clock showed that time. */
  hear(voter: Voter, told: string, timeUs: number): void;
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
  readonly onAllHeard?: (() => void) | undefined;
}

/** Servers that were asked first may take so long before the others are asked, too. */
const HEAD_START_MS = 10;

/**
 * One call to several servers at once, and to the others where those leave something open or are slow. It is over as soon
 * as nothing can change any more, and at its limit in any case: a server that is silent until then counts as one that has
 * answered. What is there when the limit is over is heard first, as it may be we who were kept from it.
 */
export class Round implements Hearer {
  readonly over: Promise<void>;
  readonly #voters: Voters;
  readonly #asks: readonly Ask[];
  readonly #call: NodeCall;
  readonly #onAllHeard: (() => void) | undefined;
  readonly #startedAtMs = systemClock.monotonicMs();
  readonly #untilMs: number;
  #timer: Timer | undefined;
  #end = (): void => undefined;
  #isOver = false;
  #owing = 0;
  #unasked: number;
  #wasAsked = false;

  constructor({ voters, asks, ballot, limitMs, onAllHeard }: RoundParts) {
    this.#voters = voters;
    this.#asks = asks;
    this.#call = new NodeCall(asks, ballot);
    this.#onAllHeard = onAllHeard;
    this.#untilMs = this.#startedAtMs + limitMs;
    this.over = new Promise((resolve) => (this.#end = resolve));
    this.#unasked = voters.everyone;
    let first = 0;
    for (const { servers } of asks) first |= servers;
    this.#ask(first);
    if (this.#owing === 0) return;
    this.#timer =
      this.#unasked === 0
        ? afterAllThatIsThere(limitMs, () => this.#giveUp())
        : afterAllThatIsThere(Math.min(HEAD_START_MS, limitMs / 2), () => this.#askOthers());
  }

  /** Whether any server was asked. */
  get wasAsked(): boolean {
    return this.#wasAsked;
  }

  /** Servers that there was no need to ask, in bits. */
  get unasked(): number {
    return this.#unasked;
  }

  /** Servers that still owe an answer, in bits. */
  get owing(): number {
    return this.#owing;
  }

  heard(voter: Voter, { timeUs, answers }: Told): void {
    const counts = !this.#isOver && voter.hasVoteSince(this.#startedAtMs);
    for (const [index, ask] of this.#asks.entries()) {
      const answer = answers[index] as string;
      if (counts) ask.hear(voter, answer, timeUs);
      else ask.hearAside(voter, answer);
    }
    this.#tick(voter);
  }

  failed(voter: Voter): void {
    for (const ask of this.#asks) ask.hearNothing(voter, true);
    this.#tick(voter);
  }

  #ask(servers: number): void {
    this.#unasked &= ~servers;
    for (const voter of this.#voters.all) {
      if ((servers & voter.bit) === 0) continue;
      if (voter.ask(this.#call, this.#untilMs, this)) this.#owing |= voter.bit;
      else for (const ask of this.#asks) ask.hearNothing(voter, false);
    }
    this.#wasAsked ||= this.#owing !== 0;
    this.#goOn();
  }

  #tick(voter: Voter): void {
    this.#owing &= ~voter.bit;
    this.#goOn();
  }

  #goOn(): void {
    if (!this.#isOver && this.#asks.every(({ isSettled }) => isSettled)) this.#finish();
    if (this.#owing !== 0) return;
    if (!this.#isOver && this.#unasked !== 0) {
      this.#ask(this.#unasked);
      return;
    }
    if (!this.#isOver) this.#finish();
    this.#timer?.cancel();
    // After those who wait for its end have drawn their conclusions.
    if (this.#onAllHeard) void this.over.then(this.#onAllHeard);
  }

  /** The first ones are slow. */
  #askOthers(): void {
    if (this.#owing === 0) return;
    const leftMs = this.#untilMs - systemClock.monotonicMs();
    this.#timer = afterAllThatIsThere(Math.max(leftMs, 0), () => this.#giveUp());
    if (this.#isOver || this.#unasked === 0) return;
    // Where none has answered it may be we who were slow.
    const asked = this.#voters.everyone & ~this.#unasked;
    if (this.#owing !== asked)
      for (const voter of this.#voters.all) if (this.#owing & voter.bit) voter.wasSlow();
    this.#ask(this.#unasked);
  }

  #giveUp(): void {
    for (const voter of this.#voters.all) if (this.#owing & voter.bit) voter.isOverdue();
    if (!this.#isOver) this.#finish();
  }

  #finish(): void {
    this.#isOver = true;
    this.#end();
  }
}

/** Timers come before what has arrived in the same turn of the event loop. */
const afterAllThatIsThere = (delayMs: number, callback: () => void): Timer =>
  systemClock.after(delayMs, () => void setImmediate(callback));
