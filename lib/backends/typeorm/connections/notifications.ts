import type { BatchResult, ReleaseNotice, RequestBatch } from '../../../core/backend.js';
import { withTimeout } from '../../../core/requests/with-timeout.js';
import { type Timer, systemClock } from '../../../core/clock.js';
import { StoreTimeoutError } from '../../../core/requests/store-timeout-error.js';
import type { Connection } from './connection.js';

const LISTEN_TIMEOUT_MS = 5_000;
const MIN_BACKOFF_MS = 50;
const MAX_BACKOFF_MS = 1_000;

interface NotificationsParts {
  connect(): Promise<Connection>;
  /** Says whether calls will come over this connection. */
  listen(driverConnection: object, onReleased: (key: string) => void): Promise<boolean>;
  onReleased(notice: ReleaseNotice): void;
}

/**
 * One connection that only listens for freed keys. It is opened when somebody first has to wait, behind his back, and
 * anew when it is lost while somebody may still wait. Where it cannot be had, waiters look by themselves.
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

  /** Of whom must wait, those are called who asked when it listened already: no release can have been missed then. */
  async executeWithNotifications(
    requests: RequestBatch,
    execute: () => Promise<BatchResult>,
  ): Promise<BatchResult> {
    const wasListening = this.#state === 'listening';
    const batchResult = await execute();
    const acquire = batchResult.acquire.map((result, index) => {
      const retryWithinMs = requests.acquire?.[index]?.retryWithinMs;
      if (result.kind !== 'taken' || retryWithinMs === undefined) return result;
      this.#listenFor(retryWithinMs);
      return wasListening ? { ...result, willBeNotified: true as const } : result;
    });
    return { ...batchResult, acquire };
  }

  /** The connection itself is closed with all others. */
  close(): void {
    this.#state = 'closed';
    this.#retryTimer?.cancel();
  }

  #listenFor(forMs: number): void {
    this.#neededUntilMs = Math.max(this.#neededUntilMs, systemClock.monotonicMs() + forMs);
    if (this.#state === 'silent') void this.#open();
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
    if (!(await withTimeout(systemClock, LISTEN_TIMEOUT_MS, listening)))
      throw new StoreTimeoutError(LISTEN_TIMEOUT_MS);
    if (this.#state !== 'opening') return;
    if (!(await listening)) {
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
