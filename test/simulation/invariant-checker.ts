import type { BatchResult, RequestBatch } from '../../lib/core/backend.js';
import type { Grant } from '../../lib/core/leases/grant.js';
import type { LockHandle } from '../../lib/core/leases/lock-handle.js';
import type { StoreObserver } from './sim-connection.js';
import type { SimProcess } from './sim-process.js';
import type { SimStore } from './sim-store.js';
import type { Timeline } from './timeline.js';

/** Somebody who asked for something, until he has an answer. */
export interface PendingCall {
  readonly process: SimProcess;
  readonly what: string;
  /** Of the line that he stands in, if he does. */
  readonly key?: string;
  readonly sinceMs: number;
  readonly stalledMs: number;
  /** He has an answer after so long at most, apart from the time in which his process stood still. */
  readonly withinMs: number;
}

/** A caller who was given the lock. */
export interface Hold {
  readonly process: SimProcess;
  readonly key: string;
  readonly handle: LockHandle;
  readonly signal: AbortSignal | undefined;
  isReleased: boolean;
}

interface InvariantCheckerOptions {
  readonly timeline: Timeline;
  readonly store: SimStore;
  readonly storeKeyOf: (key: string) => string;
  /** Nothing goes wrong in this schedule. */
  readonly isCalm: boolean;
  /** Callers look at their locks all the time. */
  readonly areWatched: boolean;
}

/** The event loop may be late by this much, and no later is a loss noticed. */
const TOLERANCE_MS = 5;
/** A lock passes from caller to caller within a process for 200 ms, and then until the last of them is done. */
const MAX_HANDOFF_MS = 200;

/** Watches everything with true time in the hand, and notes whatever breaks a promise. */
export class InvariantChecker implements StoreObserver {
  readonly findings: string[] = [];
  grants = 0;
  readonly #parts: InvariantCheckerOptions;
  readonly #holds = new Set<Hold>();
  readonly #pending = new Set<PendingCall>();
  /** When the store granted to each holder first. */
  readonly #grantedAtMs = new Map<string, number>();
  readonly #releasedHolders = new Set<string>();
  /** Until then, the store may have granted a key to two. */
  readonly #excusedUntilMs = new Map<string, number>();
  #allExcusedUntilMs = -1;
  readonly #newestToken = new Map<string, bigint>();
  readonly #grantedTokens = new Map<string, { atMs: number; token: bigint }[]>();
  /** Since when others stand in the line of the store, as seen at the last grant of a key. */
  readonly #waitersSinceMs = new Map<string, number>();
  readonly #passedOver: PendingCall[] = [];
  readonly #lastGrant = new Map<string, Grant>();

  constructor(parts: InvariantCheckerOptions) {
    this.#parts = parts;
  }

  get pending(): number {
    return this.#pending.size;
  }

  get waiting(): readonly string[] {
    return Array.from(this.#pending, ({ process, what }) => `${process.name} for ${what}`);
  }

  get holds(): readonly Hold[] {
    return [...this.#holds];
  }

  fail(what: string): void {
    this.findings.push(`at ${this.#parts.timeline.nowMs.toFixed(3)} ms: ${what}`);
  }

  started(process: SimProcess, what: string, withinMs: number, key?: string): PendingCall {
    const pending = {
      process,
      what,
      sinceMs: this.#parts.timeline.nowMs,
      stalledMs: process.stalledMs,
      withinMs,
      ...(key !== undefined && { key }),
    };
    this.#pending.add(pending);
    return pending;
  }

  settled(pending: PendingCall): void {
    this.#pending.delete(pending);
  }

  /** A lock was handed to who asked for it. */
  granted(pending: PendingCall, key: string, handle: LockHandle, listens: boolean): Hold {
    this.settled(pending);
    this.grants += 1;
    const { process } = pending;
    const { grant, fencingToken } = handle;
    if (!handle.isHeld) this.fail(`${process.name} was given "${key}" when it was not held any more`);
    if (grant.clocksAgree && grant.remainingMs < grant.leaseMs * 0.45)
      this.fail(`${process.name} was given "${key}" with ${grant.remainingMs} of ${grant.leaseMs} ms left`);
    this.#checkToken(key, pending, handle);
    this.#checkOrder(key, pending);
    this.#checkHandoffTime(key, handle);
    const hold = {
      process,
      key,
      handle,
      isReleased: false,
      signal: listens ? handle.signal : undefined,
    };
    this.#holds.add(hold);
    this.#newestToken.set(key, fencingToken);
    const grantedTokens = this.#grantedTokens.get(key) ?? [];
    this.#grantedTokens.set(key, grantedTokens);
    grantedTokens.push({ atMs: this.#parts.timeline.nowMs, token: fencingToken });
    this.#checkOverlap();
    return hold;
  }

  /** What a caller was told when he gave the lock back. */
  releaseSettled({ process, key, handle }: Hold, isReleased: boolean): void {
    const isHandedOver = handle.grant.currentToken !== handle.fencingToken;
    if (isReleased && !isHandedOver && !this.#releasedHolders.has(handle.acquisition.holder))
      this.fail(`${process.name} was told that "${key}" was released, and the store did not do it`);
  }

  onResult(batch: RequestBatch, results: BatchResult): void {
    const { nowMs } = this.#parts.timeline;
    batch.acquire?.forEach(({ holder }, index) => {
      const isNew = results.acquire[index]?.kind === 'granted' && !this.#grantedAtMs.has(holder);
      if (isNew) this.#grantedAtMs.set(holder, nowMs);
    });
    batch.release?.forEach(({ holder }, index) => {
      if (results.release[index]?.kind === 'released') this.#releasedHolders.add(holder);
    });
  }

  /** The store gave the key away although somebody may hold it. */
  onForcedRelease(storeKey: string): void {
    this.#excusedUntilMs.set(storeKey, this.#parts.timeline.nowMs);
  }

  onStoreReset(): void {
    this.#allExcusedUntilMs = this.#parts.timeline.nowMs;
  }

  /** Looks at everything, after whatever happened. */
  checkAll(): void {
    for (const hold of this.#holds) this.#checkHold(hold);
    for (const pending of this.#passedOver.splice(0)) {
      if (this.#pending.has(pending))
        this.fail(`${pending.process.name} served others first than ${pending.what}`);
    }
    if (this.#holds.size > 1 || this.#parts.areWatched) this.#checkOverlap();
    const { nowMs } = this.#parts.timeline;
    for (const pending of this.#pending) {
      const { process, sinceMs, stalledMs, withinMs, what } = pending;
      if (process.isDead) this.#pending.delete(pending);
      else if (process.isUpToDate && nowMs - sinceMs - (process.stalledMs - stalledMs) > withinMs) {
        this.#pending.delete(pending);
        this.fail(`${process.name} has no answer to ${what} after ${withinMs} ms`);
      }
    }
  }

  #checkHold(hold: Hold): void {
    const { process, key, handle, signal, isReleased } = hold;
    if (process.isDead || isReleased) {
      this.#holds.delete(hold);
      return;
    }
    const { isCalm } = this.#parts;
    if (!process.isUpToDate) return;
    if (!handle.isHeld) {
      this.#holds.delete(hold);
      if (isCalm && handle.isRenewed) this.fail(`${process.name} lost "${key}" although nothing was wrong`);
      if (signal && !signal.aborted) this.fail(`${process.name} lost "${key}" and its signal is silent`);
    } else if (handle.grant.remainingMs < -TOLERANCE_MS && !process.isClosing) {
      this.#holds.delete(hold);
      this.fail(`${process.name} has not noticed that its lease of "${key}" is over`);
    }
  }

  #checkToken(key: string, pending: PendingCall, { fencingToken, acquisition, grant }: LockHandle): void {
    const { process, sinceMs } = pending;
    const newest = this.#newestToken.get(key);
    const isExcused = this.#isExcused(acquisition.holder, acquisition.key);
    if (newest !== undefined && fencingToken <= newest && !isExcused && grant.clocksAgree)
      this.fail(`${process.name} was given token ${fencingToken} of "${key}" after ${newest}`);
    if (isExcused) return;
    for (const { atMs, token } of this.#grantedTokens.get(key) ?? []) {
      if (atMs < sinceMs && token >= fencingToken)
        this.fail(
          `${process.name} asked for "${key}" after token ${token} was given, and got ${fencingToken}`,
        );
    }
  }

  /** First come, first served, within a process. Whoever came first may just be hearing that his time is over. */
  #checkOrder(key: string, pending: PendingCall): void {
    if (pending.key === undefined) return;
    for (const other of this.#pending) {
      const isEarlier =
        other.process === pending.process && other.key === key && other.sinceMs < pending.sinceMs;
      if (isEarlier) this.#passedOver.push(other);
    }
  }

  /** While others stand in the line of the store, a process does not keep the key for ever. */
  #checkHandoffTime(key: string, { grant }: LockHandle): void {
    const { store, timeline, storeKeyOf, isCalm } = this.#parts;
    const hasOtherWaiters = store.waitingFor(storeKeyOf(key)) > 0;
    const isSame = this.#lastGrant.get(key) === grant;
    this.#lastGrant.set(key, grant);
    const sinceMs = isSame ? this.#waitersSinceMs.get(key) : undefined;
    if (!hasOtherWaiters) this.#waitersSinceMs.delete(key);
    else if (sinceMs === undefined) this.#waitersSinceMs.set(key, timeline.nowMs);
    else if (isCalm && timeline.nowMs - sinceMs > MAX_HANDOFF_MS * 1.02 + TOLERANCE_MS)
      this.fail(
        `"${key}" passes on within a process while others have waited for ${timeline.nowMs - sinceMs} ms`,
      );
  }

  /** By its own clock, and by what it knows. A machine that sleeps looks at nothing. */
  #isValid({ process, isReleased, handle }: Hold): boolean {
    if (this.#parts.areWatched && process.isUpToDate && !isReleased) return handle.isValid();
    const { isHeld, grant } = handle;
    return (
      !process.isDead &&
      !process.clock.isAsleep &&
      !isReleased &&
      isHeld &&
      grant.remainingMs > 0 &&
      grant.clocksAgree
    );
  }

  #checkOverlap(): void {
    const valid = new Map<string, Hold>();
    for (const hold of this.#holds) {
      if (!this.#isValid(hold)) continue;
      const other = valid.get(hold.key);
      valid.set(hold.key, hold);
      if (!other) continue;
      const isExcused = [hold, other].some(({ handle: { acquisition } }) =>
        this.#isExcused(acquisition.holder, acquisition.key),
      );
      if (isExcused) continue;
      this.fail(
        `${other.process.name} and ${hold.process.name} hold "${hold.key}" at once, with the tokens ` +
          `${other.handle.fencingToken} and ${hold.handle.fencingToken}`,
      );
      this.#holds.delete(hold);
    }
  }

  /** It was granted before the store forgot it, or before somebody released it by force. */
  #isExcused(holder: string, storeKey: string): boolean {
    const atMs = this.#grantedAtMs.get(holder) ?? 0;
    return atMs <= Math.max(this.#allExcusedUntilMs, this.#excusedUntilMs.get(storeKey) ?? -1);
  }
}
