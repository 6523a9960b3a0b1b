import { type Timer, systemClock } from '../../../core/clock.js';
import type { Keyspace } from '../keyspace.js';
import type { EtcdConnection } from '../rpc/etcd-connection.js';
import { Session } from './session.js';

interface SessionsParts {
  readonly connection: EtcdConnection;
  readonly keyspace: Keyspace;
  /** Whether locks of the session are held or waited for. */
  readonly isInUse: (session: Session) => boolean;
}

/**
 * The lease in etcd is longer than that of its locks by this part. So a lock can be granted in one round trip: the lease is
 * known to last for long enough.
 */
const SLACK = 1 / 4;
const MIN_SLACK_MS = 1_000;
/** A session without locks is kept for this long, so that the next lock needs only one round trip. */
const IDLE_MS = 60_000;
const CHECKS_PER_SLACK = 3;
/** Acquisitions that need the lease wait for its renewal, so a host that does not answer is left soon. */
const MAX_KEEP_ALIVE_MS = 2_000;

const slackMsOf = (leaseMs: number) => Math.max(MIN_SLACK_MS, leaseMs * SLACK);

/** The sessions of this process, one for each length of leases in whole seconds. They are kept alive while they are used. */
export class Sessions {
  readonly #parts: SessionsParts;
  readonly #sessions = new Map<number, Session>();
  readonly #timers = new Map<Session, Timer>();

  constructor(parts: SessionsParts) {
    this.#parts = parts;
  }

  /** The session for leases of this length. */
  get(leaseMs: number): Session {
    const ttlSeconds = Math.ceil((leaseMs + slackMsOf(leaseMs)) / 1_000);
    const present = this.#sessions.get(ttlSeconds);
    if (present && !present.isOver) {
      this.#keepAlive(present);
      return present;
    }
    if (present) this.#forget(ttlSeconds, present);
    const { connection, keyspace } = this.#parts;
    const session = new Session({ connection, keyspace, ttlSeconds });
    this.#sessions.set(ttlSeconds, session);
    this.#keepAlive(session);
    return session;
  }

  /** Stops the renewals, so the leases end. A later request opens new sessions. */
  close(): void {
    for (const timer of this.#timers.values()) timer.cancel();
    this.#timers.clear();
    this.#sessions.clear();
  }

  #keepAlive(session: Session): void {
    if (this.#timers.has(session) || this.#parts.connection.isClosed) return;
    const { ttlMs } = session;
    const everyMs = slackMsOf(ttlMs * (1 - SLACK / (1 + SLACK))) / CHECKS_PER_SLACK;
    const run = () => {
      this.#timers.delete(session);
      if (session.isOver || this.#isIdle(session)) {
        this.#forget(ttlMs / 1_000, session);
        return;
      }
      // A failure is no news: a request that needs the lease tries again.
      session.keepAlive(Math.min(everyMs, MAX_KEEP_ALIVE_MS)).catch(() => undefined);
      this.#timers.set(session, systemClock.after(everyMs, run));
    };
    this.#timers.set(session, systemClock.after(everyMs, run));
  }

  #isIdle(session: Session): boolean {
    const idleMs = systemClock.monotonicMs() - session.lastUsedAtMs;
    return idleMs > IDLE_MS && !this.#parts.isInUse(session);
  }

  #forget(ttlSeconds: number, session: Session): void {
    this.#timers.get(session)?.cancel();
    this.#timers.delete(session);
    if (this.#sessions.get(ttlSeconds) === session) this.#sessions.delete(ttlSeconds);
  }
}
