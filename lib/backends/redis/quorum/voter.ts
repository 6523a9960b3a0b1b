import type { Redis } from 'ioredis';
import { type Moment, type Timer, doAgree, momentOf, systemClock } from '../../../core/clock.js';
import { LockConfigError } from '../../../core/errors.js';
import { reasonOf } from '../../../core/shown.js';
import { type RedisSource, placeOf, plainly, requestConnection } from '../connection.js';
import type { ScriptRunner } from '../script.js';
import { Attendance } from './attendance.js';
import { Debts } from './debts.js';
import { type Greeting, greet, isPersistent } from './greeting.js';
import type { NodeCall, NodeRequest, Told } from './node-call.js';
import { ServerClock } from './server-clock.js';
import { Trust } from './trust.js';

/** Who asked a server. Hears exactly once. */
export interface Hearer {
  heard(voter: Voter, told: Told): void;
  /** No answer will come; the requests may have taken effect, or may yet do so. */
  failed(voter: Voter): void;
}

interface VoterParts {
  readonly index: number;
  readonly source: RedisSource;
  /** The longest lease. What is owed for longer has lapsed. */
  readonly maxLeaseMs: number;
  /** How long a server that may have forgotten has no vote. */
  readonly quarantineMs: number;
  readonly boundUs: number;
  readonly channel: string;
  /** It came, or it went. */
  readonly onGreeting: () => void;
  /** It has had no vote for a while, and why; or it has one again. */
  readonly onNews: (voter: Voter, fault: string | undefined) => void;
}

/** An attempt to connect that is under way. */
interface Opening {
  readonly outcome: Promise<void>;
  readonly settle: () => void;
}

/** Who was slow is not among the first to be asked for so long. */
const SLOW_MS = 1_000;
/** A connection that was idle for so long may have silently gone: if it then owes an answer, a new one is made. */
const IDLE_MS = 1_000;
const SHORTEST_GREETING_PAUSE_MS = 50;
const LONGEST_GREETING_PAUSE_MS = 2_000;

/** One server of a quorum, over a connection of our own. */
export class Voter {
  readonly index: number;
  readonly bit: number;
  /** What people call it: `host:port`. */
  readonly name: string;
  readonly clock = new ServerClock();
  readonly #parts: VoterParts;
  readonly #debts: Debts;
  readonly #trust: Trust;
  readonly #attendance: Attendance;
  #client: Redis | undefined;
  #opening: Opening | undefined;
  #greeting: Greeting | undefined;
  #twin: Voter | undefined;
  /** What it was asked before that it may have answered under another name as well. */
  #aloneFromMs = -Infinity;
  #trustedFromMs = Infinity;
  /** Until then no other server counts in its place; and why it does not count. */
  #listedUntilMs = -Infinity;
  #listedAt: Moment | undefined;
  #listedRunId: string | undefined;
  #unlisted = 'not confirmed yet';
  #failedGreetings = 0;
  #laterGreeting: Timer | undefined;
  #unanswered = 0;
  #isSilent = false;
  #isConnectingAnew = false;
  /** Since when it owes an answer, and when the newest one came. */
  #owesFromMs = 0;
  #heardAtMs = 0;
  #slowUntilMs = 0;
  /** Why it cannot be reached, and what it said last instead of an answer. */
  #lastError: unknown;
  #refusal: unknown;

  constructor(parts: VoterParts) {
    this.#parts = parts;
    this.index = parts.index;
    this.bit = 2 ** parts.index;
    this.name = placeOf(parts.source);
    this.#trust = new Trust(parts.quarantineMs);
    this.#debts = new Debts(this, parts.maxLeaseMs);
    this.#attendance = new Attendance(
      () => this.#client && this.fault,
      (fault) => parts.onNews(this, fault),
    );
  }

  get runId(): string | undefined {
    return this.#greeting?.runId;
  }

  /** The same, and before it the runs which this one goes on. */
  get runs(): readonly string[] {
    return this.#trust.runs;
  }

  /** Whether what it says counts. */
  get hasVote(): boolean {
    return this.hasVoteSince(systemClock.monotonicMs());
  }

  /** The same for what it was asked then. */
  hasVoteSince(ms: number): boolean {
    const wasListed = this.#trustedFromMs <= ms && ms < this.#listedUntilMs;
    return wasListed && this.#listedAt !== undefined && doAgree(this.#listedAt, momentOf(systemClock));
  }

  /** By all servers that answer it is one of those that count; as long as no machine has slept since they were asked. */
  list(untilMs: number, at: Moment): void {
    this.#listedAt = at;
    this.#listedUntilMs = untilMs;
    this.#listedRunId = this.runId;
    this.#attendance.check();
  }

  /** It has no vote, and why. */
  unlist(why: string): void {
    this.#listedUntilMs = -Infinity;
    this.isUnconfirmed(why);
  }

  /** Why it will have no vote when the last confirmation is over. */
  isUnconfirmed(why: string): void {
    this.#unlisted = why;
    this.#attendance.check();
  }

  mayVote(nowMs: number): boolean {
    return this.canBeAsked && this.hasVoteSince(nowMs);
  }

  /** Whether it was not slow of late. */
  isQuick(nowMs: number): boolean {
    return this.#slowUntilMs <= nowMs;
  }

  /** A server that owes an answer for too long is asked nothing more, so that no queue grows before it. */
  get canBeAsked(): boolean {
    return this.#greeting !== undefined && !this.isSilent;
  }

  get isSilent(): boolean {
    return this.#isSilent && this.#unanswered > 0;
  }

  /** It had a vote, was silent or lost its connection, and is asked whether it answers over another one. */
  get isConnectingAnew(): boolean {
    return this.#isConnectingAnew;
  }

  /** What only a person can mend. */
  get configFault(): LockConfigError | undefined {
    if (this.#twin) {
      return new LockConfigError(
        `Expected independent Redis servers in redlockBackend(), got the same one as ${this.#twin.name} and as ` +
          `${this.name}: it has one vote.`,
      );
    }
    return this.#lastError instanceof LockConfigError ? this.#lastError : undefined;
  }

  /** Why it has no vote now. */
  get fault(): string | undefined {
    if (!this.#greeting) {
      const what = this.#lastError instanceof LockConfigError ? 'used' : 'reached';
      return `cannot be ${what} (${reasonOf(this.#lastError ?? 'not connected yet')})`;
    }
    if (this.#twin) return `is ${this.#twin.name} once more`;
    if (this.isSilent) return 'did not answer in time';
    if (this.#refusal !== undefined) return `did not answer (${reasonOf(this.#refusal)})`;
    if (this.hasVote) return undefined;
    const nowMs = systemClock.monotonicMs();
    if (this.#trustedFromMs <= nowMs) return `has no vote, ${this.#unlisted}`;
    const seconds = Math.ceil((this.#trustedFromMs - nowMs) / 1_000);
    const why = this.#trust.isOther
      ? 'restarted and may have forgotten its locks, or is another server than before'
      : 'may have forgotten its locks when it restarted';
    return (
      `${why}, so it has no vote for another ${seconds} s. Settings changed now do not shorten this (processes that were ` +
      `connected count a server at once if it had appendonly yes and appendfsync always before it restarted)`
    );
  }

  /**
   * Sees to it that it can be asked. While the first attempt to connect is under way, or the first one after it was lost,
   * answers when that ends.
   */
  open(): Promise<void> | undefined {
    if (!this.#client) this.#connect();
    return this.#opening?.outcome;
  }

  /** Nobody waits for that attempt any longer. */
  settleOpening(): void {
    this.#opening?.settle();
    this.#opening = undefined;
  }

  close(): void {
    this.#debts.close();
    this.#client?.disconnect();
    this.#client = undefined;
    this.#isConnectingAnew = false;
    this.#forgetGreeting();
    this.settleOpening();
    this.#attendance.close();
  }

  /** Asks, if that makes sense now; says whether it did. `untilMs`: a call that arrives later is refused. */
  ask(call: NodeCall, untilMs: number, hearer: Hearer): boolean {
    const client = this.#client;
    if (!client || !this.canBeAsked) return false;
    const { boundUs, channel } = this.#parts;
    const sentAt = momentOf(systemClock);
    const sentAtMs = sentAt.monotonicMs;
    const notAfterUs = this.clock.latestUs(untilMs);
    if (this.#unanswered === 0) this.#owesFromMs = sentAtMs;
    this.#unanswered += 1;
    const fail = (cause: unknown): void => {
      this.#unanswered -= 1;
      // Of a connection that was given up it says nothing about the new one.
      if (this.#client === client) this.#refusal = plainly(cause);
      this.#attendance.check();
      hearer.failed(this);
    };
    call.run(client, { notAfterUs, boundUs, channel }).then((told) => this.#hear(told, sentAt, hearer), fail);
    return true;
  }

  /** Asks something else than the script. */
  withClient<T>(ask: (runner: ScriptRunner) => Promise<T>): Promise<T> {
    if (!this.#client || !this.canBeAsked) return Promise.reject(new Error('the server cannot be asked'));
    return ask(this.#client);
  }

  /** Its settings may change while it is on: what counts over a restart is what it last said before. */
  async lookAgain(): Promise<void> {
    const { runId } = this;
    const client = this.#client;
    if (!client || !this.canBeAsked) return;
    const sentAt = momentOf(systemClock);
    const persists = await isPersistent(client).catch(isNoRefusal);
    if (persists === undefined || this.#client !== client || this.runId !== runId) return;
    this.#trust.heard(sentAt);
    this.#trust.persists(persists);
  }

  /** Others answered while it did not. */
  wasSlow(): void {
    this.#slowUntilMs = systemClock.monotonicMs() + SLOW_MS;
  }

  /** The answer to a call came too late, or has not come. */
  isOverdue(): void {
    this.#isSilent = true;
    if (this.#client && this.#owesFromMs - this.#heardAtMs > IDLE_MS) this.#connectAnew(this.#client);
    this.#attendance.check();
  }

  /** Another one of the quorum is this very server, and has its vote; or there is none (any more). */
  setTwin(twin: Voter | undefined): void {
    if (twin === this.#twin) return;
    const hadVote = this.hasVote;
    this.#twin = twin;
    // Whoever takes over the vote of that server has it for what is asked from now on.
    const heir = twin ?? this;
    if (!twin || hadVote) heir.#aloneFromMs = systemClock.monotonicMs();
    heir.#trustAgain();
    this.#trustAgain();
    this.#attendance.check();
  }

  /** Gives it back now, or as soon as the server can be asked. */
  giveBack(request: NodeRequest): void {
    this.#debts.owe(request);
  }

  /** The same for what was to go over a connection that was lost. */
  giveBackLater(request: NodeRequest): void {
    this.#debts.oweLater(request);
  }

  #hear(told: Told, sentAt: Moment, hearer: Hearer): void {
    this.#unanswered -= 1;
    this.#refusal = undefined;
    this.#heardAtMs = systemClock.monotonicMs();
    this.#trust.heard(sentAt);
    if (told.timeUs > 0) this.clock.learn(told.timeUs, sentAt.monotonicMs);
    const wasSilent = this.#isSilent;
    this.#isSilent = false;
    hearer.heard(this, told);
    if (wasSilent) this.#debts.pay();
  }

  #connectAnew(silent: Redis): void {
    this.#heardAtMs = systemClock.monotonicMs();
    this.#isConnectingAnew = this.hasVote;
    this.#client = undefined;
    silent.disconnect();
    this.#lastError = new Error('its connection fell silent');
    this.#forgetGreeting();
    this.#connect();
  }

  #connect(): void {
    this.#opening = openingOf();
    // No Cluster: the options were checked.
    const client = requestConnection(this.#parts.source) as Redis;
    this.#client = client;
    client.on('error', (error: Error) => {
      if (this.#client === client) this.#lastError = plainly(error);
    });
    client.on('ready', () => void this.#greet(client));
    client.on('close', () => {
      if (this.#client !== client) return;
      this.#isConnectingAnew = this.hasVote;
      this.#forgetGreeting();
      this.settleOpening();
      if (this.#isConnectingAnew) this.#opening = openingOf();
      this.#attendance.check();
    });
    client.connect().catch(() => undefined); // Its outcome comes as an event too.
  }

  async #greet(client: Redis): Promise<void> {
    try {
      const greeting = await greet(client);
      if (this.#client !== client || client.status !== 'ready') return;
      this.#welcome(greeting);
    } catch (cause) {
      if (this.#client !== client || client.status !== 'ready') return;
      this.#lastError = isForbidden(cause) ? forbidden(cause) : plainly(cause);
      this.settleOpening();
      this.#attendance.check();
      this.#greetLater(client, isForbidden(cause));
    }
  }

  /** What is forbidden may be allowed to the same connection later; for the rest, another one may lead elsewhere. */
  #greetLater(client: Redis, isSameConnection: boolean): void {
    const pauseMs = SHORTEST_GREETING_PAUSE_MS * 2 ** this.#failedGreetings;
    this.#failedGreetings += 1;
    this.#laterGreeting = systemClock.after(Math.min(pauseMs, LONGEST_GREETING_PAUSE_MS), () => {
      this.#laterGreeting = undefined;
      if (isSameConnection) void this.#greet(client);
      else client.disconnect(true);
    });
  }

  #welcome(greeting: Greeting): void {
    this.#trust.meet(greeting, momentOf(systemClock));
    if (greeting.isReplica) throw new Error('it is a replica of another server');
    const { runs } = this.#trust;
    // Another server, or one that forgot: what was confirmed before says nothing of it.
    if (!runs.some((run) => run === this.#listedRunId)) this.unlist('not confirmed yet');
    this.#greeting = greeting;
    this.#failedGreetings = 0;
    this.#lastError = undefined;
    this.#refusal = undefined;
    this.#isSilent = false;
    this.#isConnectingAnew = false;
    this.#heardAtMs = systemClock.monotonicMs();
    this.clock.set(greeting.timeUs, greeting.sentAt.monotonicMs);
    this.#parts.onGreeting();
    this.#trustAgain();
    this.settleOpening();
    this.#attendance.check();
    this.#debts.pay();
  }

  #trustAgain(): void {
    const isTrusted = this.#greeting && !this.#twin;
    this.#trustedFromMs = isTrusted ? Math.max(this.#trust.fromMs, this.#aloneFromMs) : Infinity;
  }

  #forgetGreeting(): void {
    this.#laterGreeting?.cancel();
    this.#laterGreeting = undefined;
    this.#greeting = undefined;
    this.#trustAgain();
    this.#parts.onGreeting();
  }
}

function openingOf(): Opening {
  let settle = (): void => undefined;
  const outcome = new Promise<void>((resolve) => (settle = resolve));
  return { outcome, settle };
}

/** A lost connection says nothing about settings. */
const isNoRefusal = (cause: unknown) =>
  cause instanceof Error && cause.name === 'ReplyError' ? false : undefined;

const isForbidden = (cause: unknown) => /^NOPERM|unknown command/i.test(reasonOf(cause));

const forbidden = (cause: unknown) =>
  new LockConfigError(
    `a server of redlockBackend() must tell who it is and what time it has, but refuses (${reasonOf(cause)}). Allow it ` +
      `with the ACL rules +info and +time.`,
    { cause },
  );
