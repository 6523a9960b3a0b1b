import type { Answers, Requests } from '../../lib/core/backend.js';
import type { Grant } from '../../lib/core/grant.js';
import type { Lease } from '../../lib/core/lease.js';
import type { StoreWitness } from './sim-link.js';
import type { SimProcess } from './sim-process.js';
import type { SimStore } from './sim-store.js';
import type { Timeline } from './timeline.js';

/** Somebody who asked for something, until he has an answer. */
export interface Asked {
  readonly process: SimProcess;
  readonly what: string;
  /** Of the line that he stands in, if he does. */
  readonly key?: string;
  readonly sinceMs: number;
  readonly stoodStillMs: number;
  /** He has an answer after so long at most, apart from the time in which his process stood still. */
  readonly withinMs: number;
}

/** A caller who was given the lock. */
export interface Hold {
  readonly process: SimProcess;
  readonly key: string;
  readonly lease: Lease;
  readonly signal: AbortSignal | undefined;
  isGivenBack: boolean;
}

interface WitnessParts {
  readonly timeline: Timeline;
  readonly store: SimStore;
  readonly storeKeyOf: (key: string) => string;
  /** Nothing goes wrong in this schedule. */
  readonly isCalm: boolean;
  /** Callers look at their locks all the time. */
  readonly areWatched: boolean;
}

/** The event loop may be late by this much, and no later is a loss noticed. */
const LATE_MS = 5;
/** A lock passes from caller to caller within a process for 200 ms, and then until the last of them is done. */
const LONGEST_TENURE_MS = 200;

/** Watches everything with true time in the hand, and notes whatever breaks a promise. */
export class Witness implements StoreWitness {
  readonly findings: string[] = [];
  grants = 0;
  readonly #parts: WitnessParts;
  readonly #holds = new Set<Hold>();
  readonly #asked = new Set<Asked>();
  /** When the store granted to each holder first. */
  readonly #grantedAtMs = new Map<string, number>();
  readonly #released = new Set<string>();
  /** Until then, the store may have granted a key to two. */
  readonly #excusedUntilMs = new Map<string, number>();
  #allExcusedUntilMs = -1;
  readonly #newestToken = new Map<string, bigint>();
  readonly #delivered = new Map<string, { atMs: number; token: bigint }[]>();
  /** Since when others stand in the line of the store, as seen at the last grant of a key. */
  readonly #othersSinceMs = new Map<string, number>();
  readonly #passedOver: Asked[] = [];
  readonly #lastGrant = new Map<string, Grant>();

  constructor(parts: WitnessParts) {
    this.#parts = parts;
  }

  get pending(): number {
    return this.#asked.size;
  }

  get waiting(): readonly string[] {
    return Array.from(this.#asked, ({ process, what }) => `${process.name} for ${what}`);
  }

  get holds(): readonly Hold[] {
    return [...this.#holds];
  }

  fail(what: string): void {
    this.findings.push(`at ${this.#parts.timeline.nowMs.toFixed(3)} ms: ${what}`);
  }

  asks(process: SimProcess, what: string, withinMs: number, key?: string): Asked {
    const asked = {
      process,
      what,
      sinceMs: this.#parts.timeline.nowMs,
      stoodStillMs: process.stoodStillMs,
      withinMs,
      ...(key !== undefined && { key }),
    };
    this.#asked.add(asked);
    return asked;
  }

  hears(asked: Asked): void {
    this.#asked.delete(asked);
  }

  /** A lock was handed to who asked for it. */
  delivered(asked: Asked, key: string, lease: Lease, listens: boolean): Hold {
    this.hears(asked);
    this.grants += 1;
    const { process } = asked;
    const { grant, fencingToken } = lease;
    if (!lease.isHeld) this.fail(`${process.name} was given "${key}" when it was not held any more`);
    if (grant.doClocksAgree && grant.remainingMs < grant.leaseMs * 0.45)
      this.fail(`${process.name} was given "${key}" with ${grant.remainingMs} of ${grant.leaseMs} ms left`);
    this.#checkToken(key, asked, lease);
    this.#checkOrder(key, asked);
    this.#checkTenure(key, lease);
    const hold = {
      process,
      key,
      lease,
      isGivenBack: false,
      signal: listens ? lease.signal : undefined,
    };
    this.#holds.add(hold);
    this.#newestToken.set(key, fencingToken);
    const delivered = this.#delivered.get(key) ?? [];
    this.#delivered.set(key, delivered);
    delivered.push({ atMs: this.#parts.timeline.nowMs, token: fencingToken });
    this.#checkOverlap();
    return hold;
  }

  /** What a caller was told when he gave the lock back. */
  gaveBack({ process, key, lease }: Hold, isReleased: boolean): void {
    const isPassedOn = lease.grant.tenant !== lease;
    if (isReleased && !isPassedOn && !this.#released.has(lease.claim.holder))
      this.fail(`${process.name} was told that "${key}" was released, and the store did not do it`);
  }

  answered(requests: Requests, answers: Answers): void {
    const { nowMs } = this.#parts.timeline;
    requests.acquire?.forEach(({ holder }, index) => {
      const isNew = answers.acquire[index]?.kind === 'granted' && !this.#grantedAtMs.has(holder);
      if (isNew) this.#grantedAtMs.set(holder, nowMs);
    });
    requests.release?.forEach(({ holder }, index) => {
      if (answers.release[index]?.kind === 'released') this.#released.add(holder);
    });
  }

  /** The store gave the key away although somebody may hold it. */
  forced(storeKey: string): void {
    this.#excusedUntilMs.set(storeKey, this.#parts.timeline.nowMs);
  }

  forgot(): void {
    this.#allExcusedUntilMs = this.#parts.timeline.nowMs;
  }

  /** Looks at everything, after whatever happened. */
  look(): void {
    for (const hold of this.#holds) this.#lookAt(hold);
    for (const asked of this.#passedOver.splice(0)) {
      if (this.#asked.has(asked)) this.fail(`${asked.process.name} served others first than ${asked.what}`);
    }
    if (this.#holds.size > 1 || this.#parts.areWatched) this.#checkOverlap();
    const { nowMs } = this.#parts.timeline;
    for (const asked of this.#asked) {
      const { process, sinceMs, stoodStillMs, withinMs, what } = asked;
      if (process.isDead) this.#asked.delete(asked);
      else if (process.isUpToDate && nowMs - sinceMs - (process.stoodStillMs - stoodStillMs) > withinMs) {
        this.#asked.delete(asked);
        this.fail(`${process.name} has no answer to ${what} after ${withinMs} ms`);
      }
    }
  }

  #lookAt(hold: Hold): void {
    const { process, key, lease, signal, isGivenBack } = hold;
    if (process.isDead || isGivenBack) {
      this.#holds.delete(hold);
      return;
    }
    const { isCalm } = this.#parts;
    if (!process.isUpToDate) return;
    if (!lease.isHeld) {
      this.#holds.delete(hold);
      if (isCalm && lease.grant.isRenewed)
        this.fail(`${process.name} lost "${key}" although nothing was wrong`);
      if (signal && !signal.aborted) this.fail(`${process.name} lost "${key}" and its signal is silent`);
    } else if (lease.grant.remainingMs < -LATE_MS && !process.isClosing) {
      this.#holds.delete(hold);
      this.fail(`${process.name} has not noticed that its lease of "${key}" is over`);
    }
  }

  #checkToken(key: string, asked: Asked, { fencingToken, claim, grant }: Lease): void {
    const { process, sinceMs } = asked;
    const newest = this.#newestToken.get(key);
    const isExcused = this.#isExcused(claim.holder, claim.key);
    if (newest !== undefined && fencingToken <= newest && !isExcused && grant.doClocksAgree)
      this.fail(`${process.name} was given token ${fencingToken} of "${key}" after ${newest}`);
    if (isExcused) return;
    for (const { atMs, token } of this.#delivered.get(key) ?? []) {
      if (atMs < sinceMs && token >= fencingToken)
        this.fail(
          `${process.name} asked for "${key}" after token ${token} was given, and got ${fencingToken}`,
        );
    }
  }

  /** First come, first served, within a process. Whoever came first may just be hearing that his time is over. */
  #checkOrder(key: string, asked: Asked): void {
    if (asked.key === undefined) return;
    for (const other of this.#asked) {
      const isEarlier = other.process === asked.process && other.key === key && other.sinceMs < asked.sinceMs;
      if (isEarlier) this.#passedOver.push(other);
    }
  }

  /** While others stand in the line of the store, a process does not keep the key for ever. */
  #checkTenure(key: string, { grant }: Lease): void {
    const { store, timeline, storeKeyOf, isCalm } = this.#parts;
    const areOthers = store.waitingFor(storeKeyOf(key)) > 0;
    const isSame = this.#lastGrant.get(key) === grant;
    this.#lastGrant.set(key, grant);
    const sinceMs = isSame ? this.#othersSinceMs.get(key) : undefined;
    if (!areOthers) this.#othersSinceMs.delete(key);
    else if (sinceMs === undefined) this.#othersSinceMs.set(key, timeline.nowMs);
    else if (isCalm && timeline.nowMs - sinceMs > LONGEST_TENURE_MS * 1.02 + LATE_MS)
      this.fail(
        `"${key}" passes on within a process while others have waited for ${timeline.nowMs - sinceMs} ms`,
      );
  }

  /** By its own clock, and by what it knows. A machine that sleeps looks at nothing. */
  #isValid({ process, isGivenBack, lease }: Hold): boolean {
    if (this.#parts.areWatched && process.isUpToDate && !isGivenBack) return lease.isValid();
    const { isHeld, grant } = lease;
    return (
      !process.isDead &&
      !process.clock.isAsleep &&
      !isGivenBack &&
      isHeld &&
      grant.remainingMs > 0 &&
      grant.doClocksAgree
    );
  }

  #checkOverlap(): void {
    const valid = new Map<string, Hold>();
    for (const hold of this.#holds) {
      if (!this.#isValid(hold)) continue;
      const other = valid.get(hold.key);
      valid.set(hold.key, hold);
      if (!other) continue;
      const isExcused = [hold, other].some(({ lease: { claim } }) =>
        this.#isExcused(claim.holder, claim.key),
      );
      if (isExcused) continue;
      this.fail(
        `${other.process.name} and ${hold.process.name} hold "${hold.key}" at once, with the tokens ` +
          `${other.lease.fencingToken} and ${hold.lease.fencingToken}`,
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
