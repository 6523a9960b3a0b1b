import { systemClock } from '../../../../core/clock.js';

/** How long a slow server is not preferred for the fastest majority. */
const SLOW_MS = 1_000;
/** A connection that was idle for so long may be lost without notice. If its next reply is overdue, it is replaced. */
const IDLE_MS = 1_000;

/** Whether one server replies to what it is sent: in time, slowly, or not at all. */
export class ServerReplies {
  #unanswered = 0;
  #isOverdue = false;
  /** When the oldest unanswered call was sent, and when the newest reply came. */
  #unansweredFromMs = 0;
  #lastReplyAtMs = 0;
  #slowUntilMs = 0;

  /** Whether the reply to a call is overdue. */
  get isSilent(): boolean {
    return this.#isOverdue && this.#unanswered > 0;
  }

  /** Whether the connection was idle before the oldest unanswered call. */
  get wasIdle(): boolean {
    return this.#unansweredFromMs - this.#lastReplyAtMs > IDLE_MS;
  }

  /** Whether the server was not slow recently. */
  isQuick(nowMs: number): boolean {
    return this.#slowUntilMs <= nowMs;
  }

  onSent(nowMs: number): void {
    if (this.#unanswered === 0) this.#unansweredFromMs = nowMs;
    this.#unanswered += 1;
  }

  /** No reply will come to a call. */
  onFailure(): void {
    this.#unanswered -= 1;
  }

  /** Returns whether the server was silent before. */
  onReply(): boolean {
    const wasSilent = this.#isOverdue;
    this.#unanswered -= 1;
    this.onConnected();
    return wasSilent;
  }

  onConnected(): void {
    this.#isOverdue = false;
    this.#lastReplyAtMs = systemClock.monotonicMs();
  }

  /** The connection is being replaced. It is replaced once for each idle time. */
  onReplaced(): void {
    this.#lastReplyAtMs = systemClock.monotonicMs();
  }

  /** Other servers replied while this one did not. */
  markSlow(): void {
    this.#slowUntilMs = systemClock.monotonicMs() + SLOW_MS;
  }

  /** The reply to a call is overdue. */
  markOverdue(): void {
    this.#isOverdue = true;
  }
}
