import { type Timer, systemClock } from '../../../../core/clock.js';
import { setImmediate } from '../../../../core/real-time.js';
import { type Ballot, type CallReply, ServerCall, type ServerRequest } from '../server-call.js';
import type { QuorumServer, ReplyListener } from '../servers/quorum-server.js';
import type { QuorumServers } from '../servers/quorum-servers.js';

/** A request of a round. */
export interface RoundRequest extends ServerRequest {
  /** The servers to contact first, in bits. The others follow if these do not settle the request. */
  readonly initialServers: number;
  /** No further reply can change the result. */
  readonly isSettled: boolean;
  /** A server with a vote replied in time. `timeUs` is the time of its clock. */
  onReply(server: QuorumServer, reply: string, timeUs: number): void;
  /** A server without a vote replied, or one whose reply came too late to count. */
  onUncountedReply(server: QuorumServer, reply: string): void;
  /** No reply will come: the request was not sent, or its outcome is unknown (`wasSent`). */
  onNoReply(server: QuorumServer, wasSent: boolean): void;
}

interface RoundOptions {
  readonly servers: QuorumServers;
  readonly requests: readonly RoundRequest[];
  readonly ballot: Ballot;
  readonly timeoutMs: number;
  /** Called when every contacted server has replied or failed, which may be after `done`. */
  readonly onAllReplied?: (() => void) | undefined;
}

/** How long the first servers may take before the others are contacted too. */
const HEAD_START_MS = 10;

/**
 * One call with a batch of requests: first to a few servers, then to the others if those are slow or do not settle every
 * request. A round ends as soon as every request is settled, and at its timeout at the latest; later replies do not count.
 * Replies that have already arrived at the timeout still count, because perhaps only this process was blocked.
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

  /** Whether the call was sent to any server. */
  get wasSent(): boolean {
    return this.#wasSent;
  }

  /** Servers to which nothing was sent, in bits. */
  get uncontacted(): number {
    return this.#uncontacted;
  }

  /** Servers that have not replied yet, in bits. */
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
    // After the code that awaits `done` has concluded the operations.
    if (this.#onAllReplied) void this.done.then(this.#onAllReplied);
  }

  #sendToOthers(): void {
    if (this.#unanswered === 0) return;
    const leftMs = this.#untilMs - systemClock.monotonicMs();
    this.#timer = afterPendingReplies(Math.max(leftMs, 0), () => this.#onTimeout());
    if (this.#isOver || this.#uncontacted === 0) return;
    // If none has replied, perhaps this process was slow, so no server is marked.
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

/** Timers run before the replies that arrived in the same turn of the event loop, so the callback waits for those. */
const afterPendingReplies = (delayMs: number, callback: () => void): Timer =>
  systemClock.after(delayMs, () => void setImmediate(callback));
