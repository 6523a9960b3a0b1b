import type { AcquireRequest } from '../../../core/backend.js';
import type { AcquireResult, Taken } from '../../../core/backend-results.js';
import { systemClock } from '../../../core/clock.js';
import { type Deadline, deadlineIn } from '../../../core/requests/deadline.js';
import type { AbandonedPlaces } from '../../../core/requests/abandoned-places.js';
import type { LockEntry } from '../keyspace.js';
import type { ZookeeperClient } from '../session/client.js';
import type { Session } from '../session/session.js';
import { exists, getChildren, remove, setData } from '../wire/operations.js';
import {
  CODE,
  SessionOverError,
  resultAfterCreation,
  resultOfError,
  unlessCode,
} from '../wire/zookeeper-errors.js';
import { type CreatedLock, EntryCreation, type Placed, isCreated } from './entry-creation.js';
import type { LockExtension } from './lock-extension.js';
import type { OwnEntry, OwnEntries } from './own-entries.js';
import type { PredecessorWatches } from './predecessor-watches.js';
import { type QueueReader, readLock } from './queue-reader.js';
import { type StoredLock, encodeValue, firstTokenOf, valueOf } from './stored-lock.js';

interface AcquisitionsParts {
  readonly client: ZookeeperClient;
  readonly ownEntries: OwnEntries;
  readonly watches: PredecessorWatches;
  readonly abandonedPlaces: AbandonedPlaces<StoredLock>;
  readonly extension: LockExtension;
  readonly queues: QueueReader;
}

/** A place in the queue may turn out to be gone, and a session to be over. */
const MAX_TRIES = 3;

/** Acquires keys. Requests of one turn of the event loop go out together, and their replies come in the same order. */
export class Acquisitions {
  readonly #parts: AcquisitionsParts;
  readonly #creation: EntryCreation;

  constructor(parts: AcquisitionsParts) {
    this.#parts = parts;
    this.#creation = new EntryCreation(parts.client, parts.ownEntries);
  }

  /** Never rejects. */
  async acquire(request: AcquireRequest, timeoutMs: number): Promise<AcquireResult> {
    const deadline = deadlineIn(timeoutMs);
    try {
      for (let tries = 0; tries < MAX_TRIES; tries += 1) {
        const result = await this.#try(request, deadline);
        if (result) return result;
      }
      return { kind: 'taken', remainingMs: 0 };
    } catch (cause) {
      return resultOfError(cause);
    }
  }

  /** The result of an acquisition; `undefined` if it must be tried again. */
  async #try(request: AcquireRequest, deadline: Deadline): Promise<AcquireResult | undefined> {
    const { client, ownEntries } = this.#parts;
    try {
      const session = await client.ready(deadline);
      const own = ownEntries.get(request);
      // The deletion is on its way. A later entry of the same holder would be another one, but nobody would know which.
      if (ownEntries.isEnding(request)) return { kind: 'taken', remainingMs: 0 };
      return await ownEntries.whileInFlight(request, () => this.#ask(request, { own, session, deadline }));
    } catch (cause) {
      if (cause instanceof SessionOverError) return undefined;
      throw cause;
    }
  }

  async #ask(
    request: AcquireRequest,
    { own, session, deadline }: Asking,
  ): Promise<AcquireResult | undefined> {
    if (own) return this.#askAgain(request, own, deadline).catch(resultAfterCreation);
    if (!mayWait(request)) {
      const { oldest } = await this.#parts.queues.read(request.key, deadline);
      if (oldest) return this.#taken(oldest);
    }
    // As if the key were free. Then it needs no more, and an entry that is not the oldest must be changed into a place in the queue.
    const value = valueOf(request, true);
    const placed = await this.#creation.create(request, { session, deadline, value });
    return this.#settle(request, placed, deadline).catch(resultAfterCreation);
  }

  /** For an entry that was just created. */
  async #settle(
    request: AcquireRequest,
    placed: Placed,
    deadline: Deadline,
  ): Promise<AcquireResult | undefined> {
    const { own, entries } = placed;
    if (entries[0]?.path === own.path) return this.#grant(request, own, deadline);
    return mayWait(request) ? this.#queue(request, placed, deadline) : this.#giveUp(placed, deadline);
  }

  /** For a caller that holds the lock or is queued already, or whose earlier request has no reply. */
  async #askAgain(
    request: AcquireRequest,
    own: OwnEntry,
    deadline: Deadline,
  ): Promise<AcquireResult | undefined> {
    if (own.isHeld && isCreated(own)) {
      const isHeld = await this.#parts.extension.extend(own, request.leaseMs, deadline);
      return isHeld ? granted(own) : undefined;
    }
    const placed = await this.#creation.findAgain(own, deadline);
    if (!placed) return undefined;
    const index = placed.entries.findIndex(({ path }) => path === placed.own.path);
    if (index === -1) {
      this.#parts.ownEntries.remove(own);
      return undefined;
    }
    if (index > 0)
      return mayWait(request) ? this.#queue(request, placed, deadline) : this.#giveUp(placed, deadline);
    return this.#claim(request, placed.own, deadline);
  }

  /** It is the turn of this place. */
  async #claim(
    request: AcquireRequest,
    own: CreatedLock,
    deadline: Deadline,
  ): Promise<AcquireResult | undefined> {
    const { session } = own;
    const value = valueOf(request, true);
    const write = unlessCode(session.send(setData(own.path, encodeValue(value))), CODE.noNode);
    if (await session.await(write, deadline)) return this.#grant(request, { ...own, value }, deadline);
    this.#parts.ownEntries.remove(own);
    return undefined;
  }

  /** The entry is the oldest of its key. It counts once the session is known to last for as long as the lease. */
  async #grant({ leaseMs }: AcquireRequest, own: CreatedLock, deadline: Deadline): Promise<AcquireResult> {
    await own.session.confirm(leaseMs, deadline.leftMs);
    this.#parts.ownEntries.set({ ...own, isHeld: true, endsAtMs: systemClock.monotonicMs() + leaseMs });
    return granted(own);
  }

  async #queue(
    request: AcquireRequest,
    placed: Placed,
    deadline: Deadline,
  ): Promise<AcquireResult | undefined> {
    const { ownEntries, watches } = this.#parts;
    const { own, entries } = placed;
    const { session } = own;
    const [oldest] = entries as [LockEntry];
    const before = entries[entries.findIndex(({ path }) => path === own.path) - 1];
    if (!before) {
      ownEntries.remove(own);
      return undefined;
    }
    const value = valueOf(request, false);
    const isPlace = !own.value.isHeld;
    const write = isPlace ? exists(own.path) : setData(own.path, encodeValue(value));
    const queued = unlessCode(session.send(write), CODE.noNode);
    const willBeNotified = watches.isListened;
    // Of an entry without children, this watch reports its end alone.
    const watched = session.send(getChildren(before.path, willBeNotified));
    if (willBeNotified) watches.add(before.path, request.key, watched);
    const replies = [readLock(session, oldest), unlessCode(watched, CODE.noNode), queued] as const;
    const [holder, isWatched, isQueued] = await session.await(Promise.all(replies), deadline);
    if (!isQueued) ownEntries.remove(own);
    else
      ownEntries.set({ ...own, value, endsAtMs: systemClock.monotonicMs() + (request.retryWithinMs ?? 0) });
    // Something has ended meanwhile.
    if (!holder || !isWatched || !isQueued) return undefined;
    return { ...this.#taken(holder), isQueued: true, ...(willBeNotified && { willBeNotified }) };
  }

  /** The caller does not wait, so its entry must not keep others waiting. */
  async #giveUp({ own, entries }: Placed, deadline: Deadline): Promise<AcquireResult | undefined> {
    const { session } = own;
    const [oldest] = entries as [LockEntry];
    const removed = unlessCode(session.send(remove(own.path)), CODE.noNode);
    const [result] = await session.await(
      Promise.all([this.#readTaken(session, oldest, deadline), removed]),
      deadline,
    );
    this.#parts.ownEntries.remove(own);
    return result;
  }

  async #readTaken(session: Session, oldest: LockEntry, deadline: Deadline): Promise<Taken | undefined> {
    const holder = await session.await(readLock(session, oldest), deadline);
    return holder && this.#taken(holder);
  }

  #taken(oldest: StoredLock): Taken {
    const { isHeld, leaseMs } = oldest.value;
    if (!isHeld) this.#parts.abandonedPlaces.onTurn(oldest);
    return { kind: 'taken', remainingMs: isHeld ? leaseMs : 0 };
  }
}

interface Asking {
  readonly own: OwnEntry | undefined;
  readonly session: Session;
  readonly deadline: Deadline;
}

const mayWait = ({ retryWithinMs = 0 }: AcquireRequest) => retryWithinMs > 0;

const granted = ({ czxid }: OwnEntry): AcquireResult => ({
  kind: 'granted',
  fencingToken: firstTokenOf(czxid),
});
