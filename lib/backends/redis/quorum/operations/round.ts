import { type Timer, systemClock } from '../../../../core/clock.js';
import { setImmediate } from '../../../../core/real-time.js';
import { type Ballot, ServerCall, type ServerRequest, type CallReply } from '../server-call.js';
import type { ReplyListener, QuorumServer } from '../servers/quorum-server.js';
import type { QuorumServers } from '../servers/quorum-servers.js';

/** A request to servers of the quorum. */
export interface RoundRequest extends ServerRequest {
  /** Those to begin with, in bits: the others are asked as well if these leave it open. */
  readonly initialServers: number;
  /** No further answer can change anything. */
  readonly isSettled: boolean;
  /** A server with a vote answered in time; its clock showed that time. */
  onReply(server: QuorumServer, reply: string, timeUs: number): void;
  /** What a server says that has no vote, or that answers too late for one. */
  onUncountedReply(server: QuorumServer, reply: string): void;
  /** The server was not asked, or nobody will know what became of that. */
  onNoReply(server: QuorumServer, wasSent: boolean): void;
}

interface RoundOptions {
  readonly servers: QuorumServers;
  readonly requests: readonly RoundRequest[];
  readonly ballot: Ballot;
  readonly timeoutMs: number;
  /** All that were asked have answered, or never will. */
  readonly onAllReplied?: (() => void) | undefined;
}

/** Servers that were asked first may take so long before the others are asked, too. */
const HEAD_START_MS = 10;

/**
 * One call to several servers at once, and to the others where those leave something open or are slow. It is over as soon
 * as nothing can change any more, and at its limit in any case: a server that is silent until then counts as one that has
 * answered. What is there when the limit is over is heard first, as it may be we who were kept from it.
 */
export class Round implements ReplyListener {
  readonly done: Promise<void>;
  readonly #servers: QuorumServers;
  readonly #requests: readonly RoundRequest[];
  readonly #call: ServerCall;
  readonly #onAllReplied: (() => void) | undefined;
  readonly #startedAtMs = systemClock.monotonicMs();
  readonly #untilMs: number;
  #timer: Timer | undefined;
  #resolveDone = (): void => undefined;
  #isOver = false;
  #unanswered = 0;
  #uncontacted: number;
  #wasSent = false;

  constructor({ servers, requests, ballot, timeoutMs, onAllReplied }: RoundOptions) {
    this.#servers = servers;
    this.#requests = requests;
    this.#call = new ServerCall(requests, ballot);
    this.#onAllReplied = onAllReplied;
    this.#untilMs = this.#startedAtMs + timeoutMs;
    this.done = new Promise((resolve) => (this.#resolveDone = resolve));
    this.#uncontacted = servers.allBits;
    let first = 0;
    for (const { initialServers } of requests) first |= initialServers;
    this.#send(first);
    if (this.#unanswered === 0) return;
    this.#timer =
      this.#uncontacted === 0
        ? afterPendingReplies(timeoutMs, () => this.#onTimeout())
        : afterPendingReplies(Math.min(HEAD_START_MS, timeoutMs / 2), () => this.#sendToOthers());
  }

  /** Whether any server was asked. */
  get wasSent(): boolean {
    return this.#wasSent;
  }

  /** Servers that there was no need to ask, in bits. */
  get uncontacted(): number {
    return this.#uncontacted;
  }

  /** Servers that still owe an answer, in bits. */
  get unanswered(): number {
    return this.#unanswered;
  }

  onReply(server: QuorumServer, { timeUs, replies }: CallReply): void {
    const isCounted = !this.#isOver && server.hasVoteSince(this.#startedAtMs);
    for (const [index, request] of this.#requests.entries()) {
      const reply = replies[index] as string;
      if (isCounted) request.onReply(server, reply, timeUs);
      else request.onUncountedReply(server, reply);
    }
    this.#markAnswered(server);
  }

  onFailure(server: QuorumServer): void {
    for (const request of this.#requests) request.onNoReply(server, true);
    this.#markAnswered(server);
  }

  #send(serverBits: number): void {
    this.#uncontacted &= ~serverBits;
    for (const server of this.#servers.all) {
      if ((serverBits & server.bit) === 0) continue;
      if (server.send(this.#call, this.#untilMs, this)) this.#unanswered |= server.bit;
      else for (const request of this.#requests) request.onNoReply(server, false);
    }
    this.#wasSent ||= this.#unanswered !== 0;
    this.#advance();
  }

  #markAnswered(server: QuorumServer): void {
    this.#unanswered &= ~server.bit;
    this.#advance();
  }

  #advance(): void {
    if (!this.#isOver && this.#requests.every(({ isSettled }) => isSettled)) this.#finish();
    if (this.#unanswered !== 0) return;
    if (!this.#isOver && this.#uncontacted !== 0) {
      this.#send(this.#uncontacted);
      return;
    }
    if (!this.#isOver) this.#finish();
    this.#timer?.cancel();
    // After those who wait for its end have drawn their conclusions.
    if (this.#onAllReplied) void this.done.then(this.#onAllReplied);
  }

  /** The first ones are slow. */
  #sendToOthers(): void {
    if (this.#unanswered === 0) return;
    const leftMs = this.#untilMs - systemClock.monotonicMs();
    this.#timer = afterPendingReplies(Math.max(leftMs, 0), () => this.#onTimeout());
    if (this.#isOver || this.#uncontacted === 0) return;
    // Where none has answered it may be we who were slow.
    const contacted = this.#servers.allBits & ~this.#uncontacted;
    if (this.#unanswered !== contacted)
      for (const server of this.#servers.all) if (this.#unanswered & server.bit) server.markSlow();
    this.#send(this.#uncontacted);
  }

  #onTimeout(): void {
    for (const server of this.#servers.all) if (this.#unanswered & server.bit) server.markOverdue();
    if (!this.#isOver) this.#finish();
  }

  #finish(): void {
    this.#isOver = true;
    this.#resolveDone();
  }
}

/** Timers come before what has arrived in the same turn of the event loop. */
const afterPendingReplies = (delayMs: number, callback: () => void): Timer =>
  systemClock.after(delayMs, () => void setImmediate(callback));
