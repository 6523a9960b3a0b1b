import { type Timer, systemClock } from '../../../../core/clock.js';
import { setBounded } from '../set-bounded.js';
import { MAX_CALL_MS, type ServerRequest } from '../server-call.js';

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
  /** Resolves with `undefined` if the outcome is unknown. */
  sendRequest(request: ServerRequest, untilMs: number): Promise<string | undefined>;
}

/** Bounds the memory while a server is away for long. A release that is dropped leaves its lease to expire. */
const MAX_PENDING_RELEASES = 10_000;
const RETRY_PAUSE_MS = 250;
/** From narrow to wide: `release` releases the lock, and `finish` also ends the run. */
const RELEASE_VERBS = ['release', 'finish'];

/** The releases that one server has not confirmed. They are sent as soon as it is reachable, until it confirms them or the lease ends. */
export class PendingReleases {
  readonly #server: ReleaseTarget;
  readonly #maxLeaseMs: number;
  /** By {@link nameOf}. */
  readonly #pending = new Map<string, PendingRelease>();
  #retryTimer: Timer | undefined;

  constructor(server: ReleaseTarget, maxLeaseMs: number) {
    this.#server = server;
    this.#maxLeaseMs = maxLeaseMs;
  }

  /** Sends the release as soon as the server is reachable, but not before the delay. */
  add(request: ServerRequest, delayMs = 0): void {
    const name = nameOf(request);
    const nowMs = systemClock.monotonicMs();
    const release = { request, dueMs: nowMs + delayMs, untilMs: nowMs + this.#maxLeaseMs };
    const earlier = this.#pending.get(name);
    if (earlier) this.#put(name, mergeReleases(earlier, release));
    else if (delayMs > 0 || !this.#server.isReachable) this.#put(name, release);
    else void this.#send(name, release);
  }

  /** Sends what is due. Call it when the server may be reachable again. */
  flush(): void {
    const nowMs = systemClock.monotonicMs();
    for (const [name, release] of this.#pending) {
      if (release.untilMs <= nowMs) this.#pending.delete(name);
      else if (release.dueMs <= nowMs && this.#server.isReachable) {
        this.#pending.delete(name);
        void this.#send(name, release);
      }
    }
    if (this.#pending.size > 0) this.#flushLater();
  }

  close(): void {
    this.#retryTimer?.cancel();
    this.#retryTimer = undefined;
    this.#pending.clear();
  }

  async #send(name: string, release: PendingRelease): Promise<void> {
    const reply = await this.#server.sendRequest(release.request, Infinity);
    // A newer release of the same lock may have been added since.
    if (reply === undefined && !this.#pending.has(name))
      this.#put(name, { ...release, dueMs: systemClock.monotonicMs() + MAX_CALL_MS });
  }

  #put(name: string, release: PendingRelease): void {
    setBounded(this.#pending, { key: name, value: release, maxSize: MAX_PENDING_RELEASES });
    this.#flushLater();
  }

  #flushLater(): void {
    this.#retryTimer ??= systemClock.after(RETRY_PAUSE_MS, () => {
      this.#retryTimer = undefined;
      this.flush();
    });
  }
}

/** Releases of the same name are merged. A `yield` releases the vote of one acquisition only, so it keeps its own name. */
function nameOf({ holder, key, command }: ServerRequest): string {
  const isYield = typeof command === 'string' && command.startsWith('yield');
  return isYield ? `${holder} ${command} ${key}` : `${holder} ${key}`;
}

/** Merges two releases of one lock: the wider command, at the later due time. */
function mergeReleases(earlier: PendingRelease, newer: PendingRelease): PendingRelease {
  const scopeOf = ({ request: { command } }: PendingRelease) =>
    RELEASE_VERBS.findIndex((verb) => typeof command === 'string' && command.startsWith(verb));
  const { request } = scopeOf(earlier) > scopeOf(newer) ? earlier : newer;
  return { ...newer, request, dueMs: Math.max(earlier.dueMs, newer.dueMs) };
}
