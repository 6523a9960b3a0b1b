import type { Clock } from '../../clock.js';
import type { LockHandle } from '../../leases/lock-handle.js';
import { releaseAll } from '../try-parts.js';
import { ReadGrant } from './read-grant.js';

/** How an attempt to enter without a wait has ended, for the readers that waited for its result. */
export type EntryResult =
  { readonly kind: 'entered' | 'closed' | 'aborted' } | { readonly kind: 'failed'; readonly error: unknown };

/** The readers of one key in this process that want the same lease. */
export class ReadGroup {
  readonly #clock: Clock;
  readonly #onIdle: () => void;
  /** The attempt of one of them to enter. The others wait for its result, so that they share its grant. */
  entry: Promise<EntryResult> | undefined;
  #grant: ReadGrant | undefined;
  #callers = 0;

  constructor(clock: Clock, onIdle: () => void) {
    this.#clock = clock;
    this.#onIdle = onIdle;
  }

  /** The grant that new readers may join, if no writer waits. */
  get grant(): ReadGrant | undefined {
    return this.#grant?.isUsable ? this.#grant : undefined;
  }

  /** Takes over a lock for the readers. If there is one already, the new one is released. */
  adopt(handle: LockHandle): ReadGrant {
    const { grant } = this;
    if (grant) {
      releaseAll([handle]);
      return grant;
    }
    return (this.#grant = new ReadGrant(handle, { clock: this.#clock, onEmpty: () => this.#removeIfIdle() }));
  }

  begin(): void {
    this.#callers += 1;
  }

  /** The acquisition of a caller has ended. */
  end(): void {
    this.#callers -= 1;
    this.#removeIfIdle();
  }

  #removeIfIdle(): void {
    if (this.#callers === 0 && !this.#grant?.hasReaders) this.#onIdle();
  }
}

/** The groups of readers in this process. */
export class ReadGroups {
  readonly #clock: Clock;
  readonly #groups = new Map<string, ReadGroup>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** A lease that is not renewed is shared with nobody: a later reader would have less time than it asked for. */
  groupOf(key: string, { leaseMs, renew }: { readonly leaseMs: number; readonly renew: boolean }): ReadGroup {
    if (!renew) return new ReadGroup(this.#clock, () => undefined);
    const name = `${leaseMs}:${key}`;
    let group = this.#groups.get(name);
    if (!group) {
      group = new ReadGroup(this.#clock, () => this.#remove(name, group));
      this.#groups.set(name, group);
    }
    return group;
  }

  #remove(name: string, group: ReadGroup | undefined): void {
    if (this.#groups.get(name) === group) this.#groups.delete(name);
  }
}
