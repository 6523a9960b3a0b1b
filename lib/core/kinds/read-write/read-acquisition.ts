import { unavailableError } from '../../error-factories.js';
import { LockUnavailableError, isError } from '../../errors.js';
import { MAX_READING_PROCESSES, readWriteContextKey, readWriteStoreKey } from '../../store-key.js';
import type { LockAdmin } from '../../lock-admin.js';
import { StoreTimeoutError, withTimeout } from '../../requests/store-timeout.js';
import { type CompositeCall, CompositeAcquisition } from '../composite-acquisition.js';
import { type SlotRaceParts, SlotRace } from '../slot-race.js';
import { releaseAll } from '../try-parts.js';
import type { ReadGrant } from './read-grant.js';
import type { EntryResult, ReadGroup, ReadGroups } from './read-groups.js';
import { ReadLock } from './read-lock.js';

interface ReadParts extends SlotRaceParts {
  readonly lockAdmin: LockAdmin;
  readonly groups: ReadGroups;
}

/** How long it may take to read whether there is a writer. After that, the reader waits in the queue of the writers. */
const READ_TIMEOUT_MS = 1_000;

/**
 * Acquires a key to read it. While no writer holds or waits for slot 0, a process takes one of the other slots at once,
 * or joins the grant that its readers have. Otherwise the reader takes its turn in the queue of slot 0, as a writer
 * does, and gives that back as soon as it reads. So it waits for nothing while it reads.
 */
export class ReadAcquisition {
  readonly #call: CompositeCall;
  readonly #parts: ReadParts;
  readonly #acquisition: CompositeAcquisition;
  readonly #race: SlotRace;
  readonly #writerSlot: string;
  readonly #group: ReadGroup;

  constructor(call: CompositeCall, parts: ReadParts) {
    this.#call = call;
    this.#parts = parts;
    this.#acquisition = new CompositeAcquisition(call, parts);
    const { namespace } = parts;
    const { key } = call;
    const slots = Array.from({ length: MAX_READING_PROCESSES }, (_, index) =>
      readWriteStoreKey(namespace, key, index + 1),
    );
    this.#race = new SlotRace({ key, slots }, this.#acquisition, parts);
    this.#writerSlot = readWriteStoreKey(namespace, key, 0);
    this.#group = parts.groups.groupOf(key, call);
  }

  acquire(): Promise<ReadLock> {
    return this.#run(async () => (await this.#enterUnlessUnavailable()) ?? (await this.#enterInTurn()));
  }

  /** Does not wait for writers. */
  tryAcquire(): Promise<ReadLock | null> {
    return this.#run(() => this.#enter());
  }

  async #run<T extends ReadLock | null>(steps: () => Promise<T>): Promise<T> {
    this.#group.begin();
    try {
      return await this.#acquisition.run(steps);
    } finally {
      this.#group.end();
    }
  }

  /** If the store does not answer, the queue of the writers decides whether to wait for it, as for a plain lock. */
  async #enterUnlessUnavailable(): Promise<ReadLock | null> {
    try {
      return await this.#enter();
    } catch (error) {
      if (isError(LockUnavailableError, error)) return null;
      throw error;
    }
  }

  /** Returns `null` if a writer holds the key or waits for it, or all slots are taken. */
  async #enter(): Promise<ReadLock | null> {
    for (;;) {
      this.#acquisition.throwIfEnded();
      const { grant, entry } = this.#group;
      if (grant?.isFresh && !this.#isWriterHere) return this.#join(grant);
      if (!entry) return this.#lead();
      const result = await this.#acquisition.untilEnded(entry);
      if (result.kind === 'failed') throw result.error;
      if (result.kind === 'closed') return null;
      const entered = result.kind === 'entered' && this.#group.grant;
      if (entered) return this.#join(entered);
    }
  }

  /** Enters for all readers of this process that come meanwhile. */
  #lead(): Promise<ReadLock | null> {
    const attempt = this.#tryEnter();
    const { signal } = this.#acquisition;
    const entry: Promise<EntryResult> = attempt.then(
      (lock) => ({ kind: lock ? 'entered' : 'closed' }),
      (error: unknown) => (signal.aborted ? { kind: 'aborted' } : { kind: 'failed', error }),
    );
    this.#group.entry = entry;
    return attempt.finally(() => (this.#group.entry = undefined));
  }

  async #tryEnter(): Promise<ReadLock | null> {
    const checkedAtMs = this.#parts.clock.monotonicMs();
    if (await this.#isWriterThere()) return null;
    const grant = this.#group.grant;
    if (grant) return this.#join(grant, checkedAtMs);
    const slot = await this.#race.tryAcquire();
    return 'handle' in slot ? this.#join(this.#group.adopt(slot.handle), checkedAtMs) : null;
  }

  /** Waits behind the writers. */
  async #enterInTurn(): Promise<ReadLock> {
    this.#acquisition.throwIfEnded();
    const observer = { onContended: (remainingMs: number) => this.#acquisition.onContended(remainingMs) };
    const params = this.#acquisition.paramsOf(this.#call.key, this.#writerSlot);
    // However long it takes to get a slot, newer readers must not pass.
    const turn = await this.#parts.waitQueues.acquire({ ...params, renew: true, observer });
    try {
      this.#acquisition.throwIfEnded();
      const grant = this.#group.grant ?? this.#group.adopt((await this.#race.acquire()).handle);
      return this.#join(grant, this.#parts.clock.monotonicMs());
    } finally {
      releaseAll([turn]);
    }
  }

  /** Whether this process holds slot 0 or waits for it. */
  get #isWriterHere(): boolean {
    return this.#parts.waitQueues.isBusy(this.#writerSlot);
  }

  /**
   * Whether any process holds slot 0.
   *
   * @throws LockUnavailableError if the store does not answer
   */
  async #isWriterThere(): Promise<boolean> {
    if (this.#isWriterHere) return true;
    const { lockAdmin, clock } = this.#parts;
    const { key } = this.#call;
    const record = lockAdmin.readRecord(key, this.#writerSlot);
    const isInTime = await this.#acquisition.untilEnded(withTimeout(clock, READ_TIMEOUT_MS, record));
    if (!isInTime) throw unavailableError(key, new StoreTimeoutError(READ_TIMEOUT_MS));
    return (await record) !== null;
  }

  #join(grant: ReadGrant, checkedAtMs?: number): ReadLock {
    const share = grant.join();
    if (checkedAtMs !== undefined) grant.refresh(checkedAtMs);
    const { key, label } = this.#call;
    const storeKeys = readWriteContextKey(this.#parts.namespace, key, 'read');
    const { waitedMs } = this.#acquisition;
    return new ReadLock({ key, label, storeKeys, parts: [share], waitedMs, publisher: this.#parts });
  }
}
