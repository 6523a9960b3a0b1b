import { type Moment, clocksAgree, momentOf, systemClock } from '../../../core/clock.js';

/** A message of this process that its server has answered. */
interface Touch {
  readonly sentAt: Moment;
  readonly answeredAtMs: number;
}

/** Nearer touches need not be remembered. */
const TOUCHES_PER_TICK = 8;
/** In session timeouts. */
const MAX_LOST = 2;
/** In session timeouts. */
const MAX_SILENCE = 1 / 12;
const MIN_SILENCE_MS = 500;

/**
 * Until when ZooKeeper certainly keeps the session.
 *
 * The leader ends a session that it has not known to be alive for the timeout. A server answers a client by itself, and passes on
 * to the leader which clients are alive at the next ping of the leader, each half tick. A server that was cut off from the leader
 * still answers its clients for a while. So an answer proves nothing by itself. A write that a majority has committed proves
 * that the server was connected to the leader when it passed the write on. Whatever it had answered a tick before
 * that, the leader knows. The session therefore lasts for its timeout from the moment at which the newest such message was sent.
 */
export class SessionLease {
  readonly #tickMs: number;
  #timeoutMs = 0;
  #touches: Touch[] = [];
  /** The session lasts for its timeout from here. */
  #confirmedAt: Moment | undefined;
  /** When the newest connection was lost, on the monotonic clock. */
  #lostAtMs = Infinity;

  constructor(tickMs: number) {
    this.#tickMs = tickMs;
  }

  get timeoutMs(): number {
    return this.#timeoutMs;
  }

  /** The pause between two heartbeats: a lock with the longest lease can then be granted in one round trip. */
  get beatMs(): number {
    return (this.#timeoutMs / 4 - this.#tickMs) / 3;
  }

  /** A server that does not answer a ping for so long is left. */
  get maxSilenceMs(): number {
    return Math.max(this.#timeoutMs * MAX_SILENCE, MIN_SILENCE_MS);
  }

  /** Without a connection for so long, a session counts as over. If ZooKeeper was down meanwhile, it soon ends there, too. */
  get maxLostMs(): number {
    return MAX_LOST * this.#timeoutMs;
  }

  /** Servers that have lost their data refuse a client that has seen more, and never say that its session is over. */
  get isLost(): boolean {
    return systemClock.monotonicMs() - this.#lostAtMs >= this.maxLostMs;
  }

  onLost(): void {
    this.#lostAtMs = systemClock.monotonicMs();
  }

  /** A connection was opened. The leader itself has confirmed the session for it. What another server knew does not count. */
  onConnected(sentAt: Moment, timeoutMs: number): void {
    this.#timeoutMs = timeoutMs;
    this.#touches = [{ sentAt, answeredAtMs: -Infinity }];
  }

  /** The server has replied to a message. With `isCommitted`, it was a write that a majority has accepted. */
  onReply(sentAt: Moment, isCommitted: boolean): void {
    if (isCommitted) this.#confirm(sentAt.monotonicMs - this.#tickMs);
    const newest = this.#touches.at(-1);
    if (newest && sentAt.monotonicMs - newest.sentAt.monotonicMs < this.#tickMs / TOUCHES_PER_TICK) return;
    this.#touches.push({ sentAt, answeredAtMs: systemClock.monotonicMs() });
    // The session does not last from a touch that is older than its timeout. So a process that never writes remembers few.
    const oldestMs = sentAt.monotonicMs - this.#timeoutMs;
    while (this.#touches[0] && this.#touches[0].sentAt.monotonicMs < oldestMs) this.#touches.shift();
  }

  /** Whether the session lasts for so long from now. */
  lasts(ms: number): boolean {
    const [now, confirmedAt] = [momentOf(systemClock), this.#confirmedAt];
    // After a sleep of the machine, the monotonic clock says nothing about the session.
    if (!confirmedAt || !clocksAgree(confirmedAt, now)) return false;
    return confirmedAt.monotonicMs + this.#timeoutMs >= now.monotonicMs + ms;
  }

  /** The leader knows all messages that were answered by then. */
  #confirm(answeredByMs: number): void {
    const known = this.#touches.findLastIndex(({ answeredAtMs }) => answeredAtMs <= answeredByMs);
    const touch = this.#touches[known];
    if (!touch) return;
    // Older ones are of no use any more.
    this.#touches = this.#touches.slice(known);
    if (!this.#confirmedAt || touch.sentAt.monotonicMs > this.#confirmedAt.monotonicMs)
      this.#confirmedAt = touch.sentAt;
  }
}
