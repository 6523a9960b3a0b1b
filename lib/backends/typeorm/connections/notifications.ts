import type { ReleaseNotice } from '../../../core/store-notices.js';
import { type Timer, systemClock } from '../../../core/clock.js';
import { Timeout } from './session.js';
import type { Connection } from './connection.js';

const LISTEN_TIMEOUT_MS = 5_000;
const MIN_BACKOFF_MS = 50;
const MAX_BACKOFF_MS = 1_000;

interface NotificationsParts {
  connect(): Promise<Connection>;
  /** Resolves to whether notifications will arrive over this connection. */
  listen(driverConnection: object, onReleased: (key: string) => void): Promise<boolean>;
  onReleased(notice: ReleaseNotice): void;
}

/**
 * One connection that only listens for released keys. It is opened in the background when the first waiter is refused, and
 * reopened if it is lost while there may be waiters. Without it, waiters still retry on their own.
 */
export class Notifications {
  readonly #parts: NotificationsParts;
  #state: 'silent' | 'opening' | 'listening' | 'impossible' | 'closed' = 'silent';
  #neededUntilMs = 0;
  #backoffMs = MIN_BACKOFF_MS;
  #retryTimer: Timer | undefined;

  constructor(parts: NotificationsParts) {
    this.#parts = parts;
  }

  get isListening(): boolean {
    return this.#state === 'listening';
  }

  /** Keeps listening for so long, because a waiter was refused. */
  listenFor(forMs: number): void {
    this.#neededUntilMs = Math.max(this.#neededUntilMs, systemClock.monotonicMs() + forMs);
    if (this.#state === 'silent') void this.#open();
  }

  /** Ends reconnecting. The connection itself is closed by the connection factory, with all others. */
  close(): void {
    this.#state = 'closed';
    this.#retryTimer?.cancel();
  }

  async #open(): Promise<void> {
    this.#state = 'opening';
    let connection: Connection | undefined;
    try {
      connection = await this.#parts.connect();
      connection.setKeepsProcessAlive(false);
      await this.#listen(connection);
    } catch {
      connection?.destroy();
      this.#reopen();
    }
  }

  async #listen(connection: Connection): Promise<void> {
    const listening = this.#parts.listen(connection.driverConnection, (key) =>
      this.#parts.onReleased({ key }),
    );
    const willBeNotified = await new Timeout(LISTEN_TIMEOUT_MS).within(listening);
    if (this.#state !== 'opening') return;
    if (!willBeNotified) {
      this.#state = 'impossible';
      connection.destroy();
      return;
    }
    this.#state = 'listening';
    this.#backoffMs = MIN_BACKOFF_MS;
    void connection.ended.then(() => this.#reopen());
    this.#parts.onReleased({});
  }

  #reopen(): void {
    if (this.#state === 'closed') return;
    this.#state = 'silent';
    if (systemClock.monotonicMs() > this.#neededUntilMs) return;
    this.#state = 'opening';
    this.#retryTimer = systemClock.after(this.#backoffMs, () => void this.#open());
    this.#backoffMs = Math.min(this.#backoffMs * 2, MAX_BACKOFF_MS);
  }
}
