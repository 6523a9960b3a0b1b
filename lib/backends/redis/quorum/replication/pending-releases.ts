import { type Timer, systemClock } from '../../../../core/clock.js';
import { queueMicrotask } from '../../../../core/real-time.js';
import { setBounded } from '../bounded-map.js';
import { MAX_CALL_MS, ServerCall, type ServerRequest } from '../server-call.js';

/** A release that a server has not confirmed yet. */
interface PendingRelease {
  readonly request: ServerRequest;
  /** After this time the lease has ended by itself. */
  readonly untilMs: number;
  /** Not sent before: until then a request of a lost connection may still arrive, and would take effect after the release. */
  readonly dueMs: number;
}

/** The server, as far as releases need it. */
interface ReleaseTarget {
  readonly isReachable: boolean;
  /** Returns whether the call was sent. `onFailure`: its outcome is unknown. */
  send(call: ServerCall, untilMs: number, listener: { onReply(): void; onFailure(): void }): boolean;
}

/** Bounds the memory while a server is away for long. A release that is dropped leaves its lease to expire. */
const MAX_PENDING_RELEASES = 10_000;
const MAX_BATCH_SIZE = 200;
const RETRY_PAUSE_MS = 250;

/** The releases that one server has not confirmed. They are sent as soon as it is reachable, until it confirms them or the lease ends. */
export class PendingReleases {
  readonly #server: ReleaseTarget;
  readonly #maxLeaseMs: number;
  readonly #pending = new Map<string, PendingRelease>();
  #isFlushScheduled = false;
  #retryTimer: Timer | undefined;

  constructor(server: ReleaseTarget, maxLeaseMs: number) {
    this.#server = server;
    this.#maxLeaseMs = maxLeaseMs;
  }

  /** Sends the release at the end of this turn of the event loop, or as soon as the server is reachable. */
  add(request: ServerRequest): void {
    this.#schedule(request, 0);
    if (this.#isFlushScheduled) return;
    this.#isFlushScheduled = true;
    // One call for all releases of this turn.
    queueMicrotask(() => this.flush());
  }

  /** Releases what a request over a lost connection may still acquire: sent once that request can no longer take effect. */
  addDelayed(request: ServerRequest): void {
    this.#schedule(request, MAX_CALL_MS);
    this.#flushLater();
  }

  /** Sends what is due. Call it when the server may be reachable again. */
  flush(): void {
    this.#isFlushScheduled = false;
    const releases = this.#takeDue(this.#server.isReachable ? MAX_BATCH_SIZE : 0);
    if (releases.length > 0) {
      const call = new ServerCall(releases.map(({ request }) => request));
      this.#server.send(call, Infinity, {
        onReply: () => this.flush(),
        onFailure: () => this.#putBack(releases),
      });
    }
    this.#flushLater();
  }

  close(): void {
    this.#retryTimer?.cancel();
    this.#retryTimer = undefined;
    this.#pending.clear();
  }

  #schedule(request: ServerRequest, delayMs: number): void {
    const nowMs = systemClock.monotonicMs();
    const release = { request, dueMs: nowMs + delayMs, untilMs: nowMs + this.#maxLeaseMs };
    const earlier = this.#pending.get(nameOf(release));
    this.#put(earlier ? mergeReleases(earlier, release) : release);
  }

  #put(release: PendingRelease): void {
    setBounded(this.#pending, { key: nameOf(release), value: release, maxSize: MAX_PENDING_RELEASES });
  }

  /** Removes expired releases, and removes and returns up to `maxCount` that are due. */
  #takeDue(maxCount: number): readonly PendingRelease[] {
    const nowMs = systemClock.monotonicMs();
    const taken: PendingRelease[] = [];
    // A call must not contain a key twice.
    const keys = new Set<string>();
    for (const [name, release] of this.#pending) {
      const { key } = release.request;
      const hasExpired = release.untilMs <= nowMs;
      if (!hasExpired && (release.dueMs > nowMs || keys.has(key) || taken.length === maxCount)) continue;
      this.#pending.delete(name);
      if (hasExpired) continue;
      keys.add(key);
      taken.push(release);
    }
    return taken;
  }

  /** The call failed: keeps the releases, except where a newer one for the same lock was added since. */
  #putBack(releases: readonly PendingRelease[]): void {
    const dueMs = systemClock.monotonicMs() + MAX_CALL_MS;
    for (const release of releases) if (!this.#pending.has(nameOf(release))) this.#put({ ...release, dueMs });
    this.#flushLater();
  }

  #flushLater(): void {
    if (this.#retryTimer || this.#pending.size === 0) return;
    this.#retryTimer = systemClock.after(RETRY_PAUSE_MS, () => {
      this.#retryTimer = undefined;
      this.flush();
    });
  }
}

const nameOf = ({ request: { key, holder } }: PendingRelease) => `${holder} ${key}`;

/** Merges two releases of one lock: the wider command, at the later due time. */
function mergeReleases(earlier: PendingRelease, newer: PendingRelease): PendingRelease {
  const { request } = scopeOf(earlier) > scopeOf(newer) ? earlier : newer;
  return { ...newer, request, dueMs: Math.max(earlier.dueMs, newer.dueMs) };
}

/** From narrow to wide: `yield` releases the vote of one acquisition, `release` the lock, and `finish` also ends the run. */
const RELEASE_VERBS = ['yield', 'release', 'finish'];
const scopeOf = ({ request: { command } }: PendingRelease) =>
  RELEASE_VERBS.findIndex((verb) => typeof command === 'string' && command.startsWith(verb));
