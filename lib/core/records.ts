import { atMost } from './at-most.js';
import type { LockBackend, LockRecord } from './backend.js';
import type { Clock } from './clock.js';
import { LockError } from './errors.js';
import type { Events } from './events.js';
import { withJson } from './json.js';
import type { Lines } from './lines.js';
import { NoAnswerInTime } from './no-answer-in-time.js';
import { unanswered } from './refusals.js';
import { Underway } from './underway.js';

/** Who holds a key, as the store knows it. As JSON, the fencing token is a text. */
export interface LockInfo {
  readonly key: string;
  readonly holder: string;
  /** The instance that holds it, as named in its module's options. */
  readonly instance: string;
  /** By the store's clock. */
  readonly since: Date;
  readonly remainingMs: number;
  readonly fencingToken: bigint;
  /** How many wait for it in this process. */
  readonly waiting: number;
}

interface RecordsParts {
  readonly backend: LockBackend;
  readonly clock: Clock;
  readonly events: Events;
  readonly lines: Lines;
  /** From when on nothing is asked any more. */
  readonly stopping: AbortSignal;
}

const LONGEST_LOOK_MS = 5_000;

/** What the store has on record: who holds a key, and how the runs of a job went. */
export class Records {
  readonly #parts: RecordsParts;
  readonly #notes = new Underway();
  #isClosed = false;

  constructor(parts: RecordsParts) {
    this.#parts = parts;
  }

  /** Who holds the key, whichever of the callers of this process it is. */
  async lockAt(key: string, storeKey: string): Promise<LockInfo | null> {
    const record = await this.recordAt(key, storeKey);
    if (!record) return null;
    const { lines } = this.#parts;
    const { holder, instance, sinceMs, remainingMs } = record;
    // The store knows the first fencing token of a grant, this process which of its callers has it now.
    const ours = lines.grantAt(storeKey);
    const tenant = ours?.claim.holder === holder ? ours.tenant : undefined;
    const fencingToken = tenant?.fencingToken ?? record.fencingToken;
    const waiting = lines.countAt(storeKey);
    const since = new Date(sinceMs);
    return withJson({ key, holder, instance, since, remainingMs, fencingToken, waiting });
  }

  recordAt(key: string, storeKey: string): Promise<LockRecord | null> {
    return this.#ask(key, () => this.#parts.backend.inspect(storeKey, LONGEST_LOOK_MS));
  }

  async forceRelease(key: string, storeKey: string, fencingToken: bigint): Promise<boolean> {
    const { backend, lines } = this.#parts;
    // To the store, the callers who have had a grant in turn are one.
    if (lines.grantAt(storeKey)?.hasPassedOn(fencingToken)) return false;
    return this.#ask(key, () => backend.forceRelease(storeKey, fencingToken, LONGEST_LOOK_MS));
  }

  /** Notes how a run of a job goes. What goes wrong is published. */
  async note(job: string, storeKey: string, text: string): Promise<void> {
    const { backend, events } = this.#parts;
    if (this.#isClosed) return;
    this.#notes.begin();
    try {
      await backend.note(storeKey, text, LONGEST_LOOK_MS);
    } catch (cause) {
      events.emit('unavailable', { key: job, operation: 'note', cause });
    } finally {
      this.#notes.end();
    }
  }

  /** What was noted about the runs of a job, the newest first. */
  notes(job: string, storeKey: string): Promise<readonly string[]> {
    return this.#ask(job, () => this.#parts.backend.notes(storeKey, LONGEST_LOOK_MS));
  }

  /** Settles when nothing is being noted. */
  settled(): Promise<void> {
    return this.#notes.ended();
  }

  /** Notes nothing from now on. */
  close(): void {
    this.#isClosed = true;
  }

  async #ask<T>(key: string, ask: () => Promise<T>): Promise<T> {
    const { clock, stopping } = this.#parts;
    stopping.throwIfAborted();
    try {
      const answer = ask();
      if (await atMost(clock, LONGEST_LOOK_MS, answer)) return await answer;
    } catch (cause) {
      throw cause instanceof LockError ? cause : unanswered(key, cause);
    }
    throw unanswered(key, new NoAnswerInTime(LONGEST_LOOK_MS));
  }
}
