import type { Agenda, Entry } from './agenda.js';
import type { Asker, WaitingPlace } from './asker.js';
import type { ReleaseAnswer, Taken, Unknown } from './backend.js';
import type { Clock } from './clock.js';
import { LockConfigError } from './errors.js';
import type { Events } from './events.js';
import type { GiveBack } from './give-back.js';
import { Grant, type Heirs } from './grant.js';
import { type Grants, type Hearer, type NotGranted, isConnectionLost } from './grants.js';
import type { Holdings } from './holdings.js';
import { List } from './list.js';
import { NoAnswerInTime } from './no-answer-in-time.js';
import { courtesyMs, pauseMs } from './pauses.js';
import { timedOut, unavailable } from './refusals.js';
import { MORE_TURNS, MOST_TURNS, isTenureEnding, mayPassOn } from './tenure.js';

export interface LineParts {
  readonly clock: Clock;
  /** Keeps the process alive for those who wait. */
  readonly agenda: Agenda;
  readonly events: Events;
  readonly grants: Grants;
  readonly giveBack: GiveBack;
  readonly holdings: Holdings;
  /** Shown by `inspect()`. */
  readonly instance: string;
}

/** Who waits for a caller of the same process makes sure now and then that the store has not freed the key. */
const CONFIRM_EACH_MS = 1_000;

/** A place in the store's line is kept for so long without being asked for again. */
const PLACE_KEPT_MS = 6_000;

/**
 * Those of this process who want one key, first come, first served. However many they are, only one question for the
 * key is open at the store; what it grants passes from one to the next.
 */
export class Line implements Heirs, Hearer, WaitingPlace {
  readonly #key: string;
  readonly #storeKey: string;
  readonly #parts: LineParts;
  readonly #onEmpty: (storeKey: string, line: Line) => void;
  readonly #askers = new List<Asker>();
  #newcomers: Asker[] | undefined;
  #grant: Grant | undefined;
  #holder: string | undefined;
  #hasPlace = false;
  #isAsking = false;
  /** The open question was asked before, over a connection that was lost. */
  #isAskedAgain = false;
  #tries = 0;
  #lastDoubt: Unknown | undefined;
  /** When the lease of another process ends, by its newest answer. */
  #takenUntilMs = 0;
  #pause: Entry | undefined;
  /** The earliest moment for which a call, that came while a question was open, invited to look again. */
  #calledForMs = Infinity;

  constructor(
    wish: { key: string; storeKey: string },
    parts: LineParts,
    onEmpty: (storeKey: string, line: Line) => void,
  ) {
    this.#key = wish.key;
    this.#storeKey = wish.storeKey;
    this.#parts = parts;
    this.#onEmpty = onEmpty;
  }

  get size(): number {
    return this.#askers.size;
  }

  get grant(): Grant | undefined {
    return this.#grant;
  }

  join(asker: Asker): void {
    asker.inLine = this.#askers.add(asker);
    asker.listen(this);
    if (this.#grant) {
      this.#letWait(asker, this.#grant.remainingMs);
      if (!this.#pause) this.#lookAgainIn(CONFIRM_EACH_MS);
    } else if (this.#pause && !this.#lastDoubt) this.#letWait(asker, 0);
    else {
      if (this.#newcomers) this.#newcomers.push(asker);
      else this.#newcomers = [asker];
      const asksItself = !this.#isAsking && this.#askers.size === 1;
      if (!asksItself) asker.awaitWord(this.#parts.agenda, this);
      this.#ask();
    }
  }

  /** What was granted to somebody who did not stand in line passes on like any other grant. */
  adopt(grant: Grant): void {
    // One that the store has freed may not know it yet.
    if (this.#grant) return;
    this.#grant = grant;
    this.#lastDoubt = undefined;
    this.#calledForMs = Infinity;
    grant.heirs = this;
    this.#lookAgainIn(CONFIRM_EACH_MS);
  }

  /** The key may be free in so many ms. */
  wake(inMs: number): void {
    if (this.#grant) return;
    const atMs = this.#parts.clock.monotonicMs() + inMs;
    if (this.#isAsking) this.#calledForMs = Math.min(this.#calledForMs, atMs);
    else if (this.#pause && this.#pause.atMs > atMs) this.#lookAgainIn(inMs);
  }

  sendAllAway(reason: unknown): void {
    for (const asker of [...this.#askers]) this.sendAway(asker, reason);
  }

  takeOver(grant: Grant): boolean {
    const next = this.#askers.first?.value;
    if (!next) {
      // Whoever comes now asks the store, right behind the release.
      this.#grant = undefined;
      this.#endIfEmpty();
      return false;
    }
    if (!mayPassOn(grant, next.wish, this.#parts.clock.monotonicMs())) return false;
    this.#deliver(grant, next);
    return true;
  }

  onEnded(grant: Grant, answer?: ReleaseAnswer): void {
    if (this.#grant !== grant) return;
    this.#grant = undefined;
    // In a store without a line, whoever asks first would always be we.
    if (answer?.kind === 'released' && answer.othersWait) this.#lookAgainIn(courtesyMs());
    else this.#ask();
    this.#endIfEmpty();
  }

  #deliver(grant: Grant, asker: Asker): void {
    const { events, holdings, agenda } = this.#parts;
    asker.inLine?.leave();
    const lease = grant.tenant ? holdings.passOn(grant) : holdings.take(grant, asker.wish);
    if (isTenureEnding(grant) && this.#askers.first) holdings.prolongTenure(grant, MORE_TURNS);
    asker.granted(lease, agenda);
    events.emit('acquired', { key: this.#key, fencingToken: lease.fencingToken, waitedMs: asker.waitedMs });
  }

  get #mayAsk(): boolean {
    return !this.#isAsking && !this.#grant && this.#askers.first !== undefined;
  }

  #ask(): void {
    const asker = this.#askers.first?.value;
    if (!asker || !this.#mayAsk) return;
    const { grants, instance } = this.#parts;
    const { leaseMs } = asker.wish;
    const waitMs = asker.leftMs;
    const holder = (this.#holder ??= grants.newHolder());
    this.#isAsking = true;
    this.#tries += 1;
    this.#calledForMs = Infinity;
    this.#stopPause();
    const request = {
      key: this.#storeKey,
      holder,
      leaseMs,
      instance,
      tokenCount: MOST_TURNS,
      againWithinMs: waitMs > 0 ? PLACE_KEPT_MS : undefined,
    };
    grants.ask({ key: this.#key, request, waitMs }, this);
  }

  hear(answer: Grant | NotGranted): void {
    this.#isAsking = false;
    const wasAskedAgain = this.#isAskedAgain;
    this.#isAskedAgain = false;
    if (answer instanceof Grant) this.#hearGranted(answer);
    else if (isConnectionLost(answer) && !wasAskedAgain && this.#mayAsk) this.#askAgain();
    else if (answer.kind === 'unknown') this.#hearNothing(answer);
    else if (answer.kind === 'taken') this.#hearTaken(answer);
    this.#endIfEmpty();
  }

  /** Newcomers hear only what is said over the new connection. The old holder is being given back, with its place in line. */
  #askAgain(): void {
    this.#holder = undefined;
    this.#hasPlace = false;
    this.#isAskedAgain = true;
    this.#ask();
  }

  #hearGranted(grant: Grant): void {
    this.#holder = undefined;
    this.#hasPlace = false;
    this.#takenUntilMs = 0;
    this.#tries = 0;
    this.#lastDoubt = undefined;
    this.#calledForMs = Infinity;
    const next = this.#askers.first?.value;
    // Who asked may have left meanwhile, and the next may want another lease.
    if (!next || next.wish.leaseMs !== grant.leaseMs) {
      this.#parts.giveBack.release(grant.claim, grant.lastsUntilMs);
      this.#ask();
      return;
    }
    this.#grant = grant;
    grant.heirs = this;
    this.#deliver(grant, next);
    for (const newcomer of this.#takeNewcomers()) this.#letWait(newcomer, grant.remainingMs);
    this.#lookAgainIn(CONFIRM_EACH_MS);
  }

  #hearTaken(taken: Taken): void {
    this.#hasPlace ||= taken.isInLine ?? false;
    this.#takenUntilMs = this.#parts.clock.monotonicMs() + taken.remainingMs;
    this.#lastDoubt = undefined;
    for (const newcomer of this.#takeNewcomers()) this.#letWait(newcomer, taken.remainingMs);
    this.#lookAgainIn(pauseMs(this.#tries, taken));
  }

  #hearNothing(doubt: Unknown): void {
    // Who stands in line stays there while the store comes back; who comes to a closed door hears of it at once.
    const mayWait = doubt.cause instanceof NoAnswerInTime;
    const isHopeless = doubt.cause instanceof LockConfigError;
    this.#lastDoubt = doubt;
    // The old holder is being given back, with its place in line, and may be for a while.
    if (doubt.wasSent !== false) {
      this.#holder = undefined;
      this.#hasPlace = false;
    }
    if (isHopeless) this.sendAllAway(unavailable(this.#key, doubt.cause));
    for (const newcomer of this.#takeNewcomers()) {
      if (mayWait) this.#letStand(newcomer);
      else this.sendAway(newcomer, unavailable(this.#key, doubt.cause));
    }
    this.#lookAgainIn(pauseMs(this.#tries, doubt));
  }

  /** Tells that the key is taken. */
  #letWait(asker: Asker, remainingMs: number): void {
    this.#parts.events.emit('contended', { key: this.#key, remainingMs });
    if (asker.isSettled) return;
    this.#letStand(asker);
  }

  #letStand(asker: Asker): void {
    asker.heardWord(this.#parts.agenda);
    if (asker.leftMs === 0) this.timeIsOver(asker);
    else asker.wait(this.#parts.agenda, this);
  }

  timeIsOver(asker: Asker): void {
    const { waitedMs } = asker;
    const doubt = asker.awaitsWord ? new NoAnswerInTime(waitedMs) : this.#lastDoubt?.cause;
    if (doubt) {
      this.sendAway(asker, unavailable(this.#key, doubt));
      return;
    }
    this.#parts.events.emit('timeout', { key: this.#key, waitedMs });
    const remainingMs = this.#grant ? 0 : this.#takenUntilMs - this.#parts.clock.monotonicMs();
    this.sendAway(asker, timedOut(this.#key, waitedMs, remainingMs));
  }

  sendAway(asker: Asker, reason: unknown): void {
    asker.inLine?.leave();
    asker.refused(reason, this.#parts.agenda);
    this.#endIfEmpty();
  }

  /** Those who have not heard anything yet, and now will. */
  #takeNewcomers(): Asker[] {
    const newcomers = this.#newcomers ?? [];
    this.#newcomers = undefined;
    return newcomers.filter((asker) => !asker.isSettled);
  }

  #lookAgainIn(delayMs: number): void {
    const { agenda, clock } = this.#parts;
    this.#stopPause();
    if (!this.#askers.first) return;
    const nowMs = clock.monotonicMs();
    const atMs = Math.min(nowMs + delayMs, this.#calledForMs);
    if (atMs <= nowMs) this.#look();
    else this.#pause = agenda.add({ atMs, run: () => this.#look() });
  }

  #look(): void {
    this.#pause = undefined;
    if (this.#grant) this.#confirm(this.#grant);
    else this.#ask();
  }

  #confirm(grant: Grant): void {
    void this.#parts.holdings.confirm(grant);
    this.#lookAgainIn(CONFIRM_EACH_MS);
  }

  #stopPause(): void {
    if (this.#pause) this.#parts.agenda.remove(this.#pause);
    this.#pause = undefined;
  }

  #endIfEmpty(): void {
    if (this.#askers.first || this.#isAsking) return;
    this.#stopPause();
    if (this.#grant) return;
    if (this.#hasPlace && this.#holder !== undefined) {
      const claim = { key: this.#storeKey, holder: this.#holder };
      this.#hasPlace = false;
      this.#parts.giveBack.release(claim, this.#parts.clock.monotonicMs() + PLACE_KEPT_MS);
    }
    this.#onEmpty(this.#storeKey, this);
  }
}
