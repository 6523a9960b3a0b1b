import { type Timer, systemClock } from '../../../../core/clock.js';
import { queueMicrotask } from '../../../../core/real-time.js';
import { setBounded } from '../bounded-map.js';
import { MAX_CALL_MS, ServerCall, type ServerRequest } from '../server-call.js';

/** Something to give back that a server has not confirmed yet. */
interface PendingRelease {
  readonly request: ServerRequest;
  /** From then on the lease is over in any case. */
  readonly untilMs: number;
  /** What went over a connection that was lost may still arrive until then, and would come after this. */
  readonly dueMs: number;
}

/** Whom it is owed to. */
interface ReleaseTarget {
  readonly isReachable: boolean;
  /** `failed`: nobody knows what became of the call. */
  send(call: ServerCall, untilMs: number, listener: { onReply(): void; onFailure(): void }): boolean;
}

/** A server that is away for long makes no memory grow without end: what is not given back lapses. */
const MAX_PENDING_RELEASES = 10_000;
const MAX_BATCH_SIZE = 200;
const RETRY_PAUSE_MS = 250;

/** What one server is to take back as soon as it can be asked. */
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

  /** It is to be given back now, or as soon as the server can be asked. */
  add(request: ServerRequest): void {
    this.#schedule(request, 0);
    if (this.#isFlushScheduled) return;
    this.#isFlushScheduled = true;
    // Together with all else that this turn gives back.
    queueMicrotask(() => this.flush());
  }

  /** The same for what was to go over a connection that was lost. */
  addDelayed(request: ServerRequest): void {
    this.#schedule(request, MAX_CALL_MS);
    this.#flushLater();
  }

  /** The server may be there (again). */
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

  /** So many of those that may be paid now, which then are owed no more. */
  #takeDue(maxCount: number): readonly PendingRelease[] {
    const nowMs = systemClock.monotonicMs();
    const taken: PendingRelease[] = [];
    // No key stands twice in one call.
    const keys = new Set<string>();
    for (const [name, release] of this.#pending) {
      const { key } = release.request;
      const hasLapsed = release.untilMs <= nowMs;
      if (!hasLapsed && (release.dueMs > nowMs || keys.has(key) || taken.length === maxCount)) continue;
      this.#pending.delete(name);
      if (hasLapsed) continue;
      keys.add(key);
      taken.push(release);
    }
    return taken;
  }

  /** They could not be paid; what was owed for the same lock since takes their place. */
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

/** Of two for one lock: the one that goes further, when neither comes too early. */
function mergeReleases(earlier: PendingRelease, newer: PendingRelease): PendingRelease {
  const { request } = scopeOf(earlier) > scopeOf(newer) ? earlier : newer;
  return { ...newer, request, dueMs: Math.max(earlier.dueMs, newer.dueMs) };
}

/** A vote is given back for one question, a lock for all of them; the end of a run is noted besides. */
const RELEASE_VERBS = ['yield', 'release', 'finish'];
const scopeOf = ({ request: { command } }: PendingRelease) =>
  RELEASE_VERBS.findIndex((verb) => typeof command === 'string' && command.startsWith(verb));
