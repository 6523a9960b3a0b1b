import { type Timer, systemClock } from '../../../../core/clock.js';
import { delay, setImmediate } from '../../../../core/real-timers.js';
import { type Ballot, type CallReply, ServerCall } from '../server-call.js';
import type { QuorumServer, ReplyListener } from '../servers/quorum-server.js';
import { type QuorumServers, type Timeouts, limitsBeforeRequest } from '../servers/quorum-servers.js';
import type { QuorumOperation, RoundOutcome } from './quorum-operation.js';

/** How long the first servers may take before the others are contacted too. */
const HEAD_START_MS = 10;

/** Runs round after round until each operation has its result. */
export async function runRounds(
  servers: QuorumServers,
  operations: readonly QuorumOperation[],
  timeouts: Timeouts,
): Promise<void> {
  const { timeoutMs, serverLimitMs } = timeouts;
  const startedAtMs = systemClock.monotonicMs();
  const needsVotes = operations.some((operation) => operation.needsVotes !== false);
  const ready = servers.waitUntilReady(limitsBeforeRequest(timeouts), { needsVotes });
  if (ready) await ready;
  let open = operations;
  let firstUs: number | undefined;
  let wasSent = false;
  for (let roundNumber = 0; open.length > 0; roundNumber += 1) {
    const us = nextBallotUs(servers, open);
    const ballot = { us, firstUs: (firstUs ??= us), isRaised: roundNumber > 0 };
    const round = new Round(servers, open, { ballot, timeoutMs: serverLimitMs });
    await round.done;
    wasSent ||= round.wasSent;
    const { sentAtMs, uncontacted, unanswered } = round;
    const outcome: RoundOutcome = {
      roundNumber,
      ballot,
      sentAtMs,
      endsAtMs: startedAtMs + serverLimitMs,
      latestEndMs: startedAtMs + timeoutMs - 2 * serverLimitMs,
      timeoutMs: serverLimitMs,
      wasSent,
      uncontacted,
      unanswered,
    };
    let pauseMs = Infinity;
    open = open.filter((operation) => {
      const waitMs = operation.conclude(outcome);
      if (waitMs !== undefined) pauseMs = Math.min(pauseMs, waitMs);
      return waitMs !== undefined;
    });
    round.onConcluded();
    if (open.length > 0 && pauseMs > 0) await delay(pauseMs);
  }
}

/** A ballot above all tokens that the operations have seen; 0 if none needs one. */
function nextBallotUs(servers: QuorumServers, operations: readonly QuorumOperation[]): number {
  let newestUs: number | undefined;
  for (const { newestTokenUs } of operations)
    if (newestTokenUs !== undefined) newestUs = Math.max(newestUs ?? 0, newestTokenUs);
  return newestUs === undefined ? 0 : servers.ballots.nextUs(newestUs);
}

/**
 * One call with a batch of requests: first to a few servers, then to the others if those are slow or do not settle every
 * request. A round ends as soon as every request is settled, and at its timeout at the latest; later replies do not count.
 * Replies that have already arrived at the timeout still count, because perhaps only this process was blocked.
 */
class Round implements ReplyListener {
  readonly done: Promise<void>;
  readonly sentAtMs = systemClock.monotonicMs();
  /** Whether the call was sent to any server. */
  wasSent = false;
  /** Servers to which nothing was sent, in bits. */
  uncontacted: number;
  /** Servers that have not replied yet, in bits. */
  unanswered = 0;
  readonly #servers: QuorumServers;
  readonly #operations: readonly QuorumOperation[];
  readonly #call: ServerCall;
  readonly #untilMs: number;
  #timer: Timer | undefined;
  #isOver = false;
  #isConcluded = false;
  #finish = (): void => undefined;

  constructor(
    servers: QuorumServers,
    operations: readonly QuorumOperation[],
    { ballot, timeoutMs }: { ballot: Ballot; timeoutMs: number },
  ) {
    this.#servers = servers;
    this.#operations = operations;
    this.#call = new ServerCall(operations, ballot);
    this.#untilMs = this.sentAtMs + timeoutMs;
    this.done = new Promise((resolve) => (this.#finish = resolve));
    this.uncontacted = servers.allBits;
    this.#send(operations.reduce((bits, { initialServers }) => bits | initialServers, 0));
    if (this.unanswered === 0) return;
    this.#timer =
      this.uncontacted === 0
        ? afterPendingReplies(timeoutMs, () => this.#onTimeout())
        : afterPendingReplies(Math.min(HEAD_START_MS, timeoutMs / 2), () => this.#sendToOthers());
  }

  /** The operations have concluded the round. Further replies may come. */
  onConcluded(): void {
    this.#isConcluded = true;
    if (this.unanswered === 0) this.#reportAllReplied();
  }

  onReply(server: QuorumServer, { timeUs, replies }: CallReply): void {
    const isCounted = !this.#isOver && server.hasVoteSince(this.sentAtMs);
    for (const [index, operation] of this.#operations.entries()) {
      const reply = replies[index] as string;
      if (isCounted) operation.onReply(server, reply, timeUs);
      else operation.onUncountedReply?.(server, reply);
    }
    this.#markAnswered(server);
  }

  onFailure(server: QuorumServer): void {
    for (const operation of this.#operations) operation.onNoReply?.(server, true);
    this.#markAnswered(server);
  }

  #send(serverBits: number): void {
    this.uncontacted &= ~serverBits;
    for (const server of this.#servers.in(serverBits)) {
      if (server.send(this.#call, this.#untilMs, this)) this.unanswered |= server.bit;
      else for (const operation of this.#operations) operation.onNoReply?.(server, false);
    }
    this.wasSent ||= this.unanswered !== 0;
    this.#advance();
  }

  #markAnswered(server: QuorumServer): void {
    this.unanswered &= ~server.bit;
    this.#advance();
  }

  #advance(): void {
    if (!this.#isOver && this.#operations.every(({ isSettled }) => isSettled)) this.#end();
    if (this.unanswered !== 0) return;
    if (!this.#isOver && this.uncontacted !== 0) {
      this.#send(this.uncontacted);
      return;
    }
    if (!this.#isOver) this.#end();
    this.#timer?.cancel();
    if (this.#isConcluded) this.#reportAllReplied();
  }

  #reportAllReplied(): void {
    for (const operation of this.#operations) operation.onAllReplied?.();
  }

  #sendToOthers(): void {
    if (this.unanswered === 0) return;
    const leftMs = this.#untilMs - systemClock.monotonicMs();
    this.#timer = afterPendingReplies(Math.max(leftMs, 0), () => this.#onTimeout());
    if (this.#isOver || this.uncontacted === 0) return;
    // If none has replied, perhaps this process was slow, so no server is marked.
    const contacted = this.#servers.allBits & ~this.uncontacted;
    if (this.unanswered !== contacted)
      for (const server of this.#servers.in(this.unanswered)) server.replies.markSlow();
    this.#send(this.uncontacted);
  }

  #onTimeout(): void {
    for (const server of this.#servers.in(this.unanswered)) server.markOverdue();
    if (!this.#isOver) this.#end();
  }

  #end(): void {
    this.#isOver = true;
    this.#finish();
  }
}

/** Timers run before the replies that arrived in the same turn of the event loop, so the callback waits for those. */
const afterPendingReplies = (delayMs: number, callback: () => void): Timer =>
  systemClock.after(delayMs, () => void setImmediate(callback));
