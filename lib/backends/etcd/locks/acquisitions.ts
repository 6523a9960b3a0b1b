import type { AcquireRequest } from '../../../core/backend.js';
import type { AcquireResult, Taken } from '../../../core/backend-results.js';
import { systemClock } from '../../../core/clock.js';
import { unknownResult } from '../../../core/unknown-result.js';
import type { AbandonedPlaces } from '../../../core/requests/abandoned-places.js';
import type { Keyspace } from '../keyspace.js';
import { hasNoEffect, resultOfError } from '../rpc/etcd-errors.js';
import type { TxnResponse } from '../rpc/messages.js';
import { SessionOverError, type Session } from '../session/session.js';
import type { Sessions } from '../session/sessions.js';
import { type AcquisitionReply, encodeAcquisition, parseAcquisition } from './acquisition-requests.js';
import type { EntryNames } from './entry-names.js';
import type { LockExtension } from './lock-extension.js';
import type { OwnEntries } from './own-entries.js';
import type { PredecessorWatches } from './predecessor-watches.js';
import { type StoredLock, firstTokenOf } from './stored-lock.js';

interface AcquisitionsParts {
  readonly keyspace: Keyspace;
  readonly names: EntryNames;
  readonly sessions: Sessions;
  readonly ownEntries: OwnEntries;
  readonly watches: PredecessorWatches;
  readonly abandonedPlaces: AbandonedPlaces<StoredLock>;
  readonly extension: LockExtension;
}

/** An acquisition has up to seven operations. etcd accepts 128 in a transaction, at all levels together. */
const MAX_PER_TRANSACTION = 64;
/** A place in the queue may turn out to be gone, and a session to be over. */
const MAX_TRIES = 3;

/** An acquisition with the place of its result. */
export interface IndexedAcquisition<Request = AcquireRequest> {
  readonly index: number;
  readonly request: Request;
}

type Report = (index: number, result: AcquireResult) => void;

/** Acquires keys, many in one transaction. */
export class Acquisitions {
  readonly #parts: AcquisitionsParts;

  constructor(parts: AcquisitionsParts) {
    this.#parts = parts;
  }

  /** Never rejects. */
  async acquire(
    acquisitions: readonly IndexedAcquisition[],
    timeoutMs: number,
    report: Report,
  ): Promise<void> {
    const endsAtMs = systemClock.monotonicMs() + timeoutMs;
    const bySession = new Map<Session, IndexedAcquisition[]>();
    for (const acquisition of acquisitions) {
      const session = this.#parts.sessions.get(acquisition.request.leaseMs);
      const present = bySession.get(session);
      if (present) present.push(acquisition);
      else bySession.set(session, [acquisition]);
    }
    const calls: Promise<void>[] = [];
    for (const group of bySession.values()) {
      for (let start = 0; start < group.length; start += MAX_PER_TRANSACTION) {
        const part = group.slice(start, start + MAX_PER_TRANSACTION);
        calls.push(this.#acquireAll(part, endsAtMs, report));
      }
    }
    await Promise.all(calls);
  }

  async #acquireAll(
    acquisitions: readonly IndexedAcquisition[],
    endsAtMs: number,
    report: Report,
  ): Promise<void> {
    let open = acquisitions;
    for (let tries = 0; open.length > 0 && tries < MAX_TRIES; tries += 1)
      open = await this.#tryAll(open, endsAtMs, report);
    for (const { index } of open) report(index, { kind: 'taken', remainingMs: 0 });
  }

  /** Sends one transaction. Returns the acquisitions that must be sent again. Never rejects. */
  async #tryAll(
    acquisitions: readonly IndexedAcquisition[],
    endsAtMs: number,
    report: Report,
  ): Promise<readonly IndexedAcquisition[]> {
    const { sessions, ownEntries } = this.#parts;
    const leaseMs = Math.max(...acquisitions.map(({ request }) => request.leaseMs));
    const session = sessions.get(leaseMs);
    const leftMs = () => Math.max(endsAtMs - systemClock.monotonicMs(), 0);
    let open = acquisitions;
    try {
      await session.prepare(leaseMs, leftMs());
      const placed = this.#withoutEnding(acquisitions, report);
      if (placed.length === 0) return [];
      open = placed;
      const sending = { session, leftMs, report };
      return await ownEntries.whileInFlight(
        placed.map(({ name }) => name),
        () => this.#sendAll(placed, sending),
      );
    } catch (cause) {
      if (cause instanceof SessionOverError && leftMs() > 0) return open;
      for (const { index } of open) report(index, resultOfError(cause));
      return [];
    }
  }

  /** An entry that is being deleted must not be granted: the deletion would end the grant. */
  #withoutEnding(acquisitions: readonly IndexedAcquisition[], report: Report): readonly PlacedAcquisition[] {
    const { names, ownEntries } = this.#parts;
    const placed = acquisitions.map((one) => {
      const name = names.nameOf(one.request.key, one.request.holder);
      // Reading the places also notices which of them have ended.
      return { ...one, name, queuedAt: this.#placeAt(name) };
    });
    return placed.filter(({ index, name }) => {
      const isEnding = ownEntries.isEnding(name);
      if (isEnding) report(index, { kind: 'taken', remainingMs: 0 });
      return !isEnding;
    });
  }

  async #sendAll(
    acquisitions: readonly PlacedAcquisition[],
    { report, ...sending }: Sending & { readonly report: Report },
  ): Promise<readonly IndexedAcquisition[]> {
    const { header, responses } = await this.#send(acquisitions, sending);
    const outcomes = await Promise.all(
      acquisitions.map(async ({ index, request, name, queuedAt }, position) => {
        const reply = parseAcquisition(this.#parts.keyspace, responses[position]);
        const revision = queuedAt ?? BigInt(header.revision);
        const result = await this.#resultOf(request, { name, reply, revision, ...sending });
        if (result) report(index, result);
        return result;
      }),
    );
    return acquisitions.filter((_, position) => !outcomes[position]);
  }

  async #send(
    acquisitions: readonly PlacedAcquisition[],
    { session, leftMs }: Sending,
  ): Promise<TxnResponse> {
    const { keyspace, ownEntries } = this.#parts;
    const { leaseId } = session;
    const operations = acquisitions.map(({ request, name, queuedAt }) =>
      encodeAcquisition(request, { keyspace, name, leaseId, queuedAt }),
    );
    try {
      return await session.transact(operations, leftMs());
    } catch (cause) {
      if (hasNoEffect(cause)) throw cause;
      for (const { name, request } of acquisitions) {
        const { key, leaseMs } = request;
        ownEntries.markUnknown({ name, key, session, leaseMs });
      }
      throw cause;
    }
  }

  /** The result of an acquisition; `undefined` if it must be sent again. */
  async #resultOf(request: AcquireRequest, outcome: AcquisitionOutcome): Promise<AcquireResult | undefined> {
    const { ownEntries } = this.#parts;
    const { name, reply, revision, session, leftMs } = outcome;
    if (reply.isGranted) {
      this.#remember(request, { name, session, createRevision: revision, isHeld: true });
      this.#parts.watches.stop(name);
      return { kind: 'granted', fencingToken: firstTokenOf(revision) };
    }
    const { oldest } = reply;
    const own = reply.own?.holder === request.holder ? reply.own : undefined;
    if (own?.value.isHeld) return this.#grantAgain(request, own, leftMs());
    if (own) this.#remember(request, { name, session, createRevision: own.createRevision, isHeld: false });
    else ownEntries.remove(name);
    const isTurn = own && oldest?.createRevision === own.createRevision;
    const isPlaceGone = !own && (request.retryWithinMs ?? 0) > 0;
    // If the key was freed meanwhile, the next try may be granted.
    return !oldest || isTurn || isPlaceGone ? undefined : this.#taken(request, { own, oldest });
  }

  /** The revision of its place in the queue. */
  #placeAt(name: Buffer): bigint | undefined {
    const own = this.#parts.ownEntries.get(name);
    return own?.isHeld === false ? own.createRevision : undefined;
  }

  async #grantAgain(
    request: AcquireRequest,
    own: StoredLock,
    timeoutMs: number,
  ): Promise<AcquireResult | undefined> {
    try {
      const isExtended = await this.#parts.extension.extend(own, request.leaseMs, timeoutMs);
      return isExtended ? { kind: 'granted', fencingToken: firstTokenOf(own.createRevision) } : undefined;
    } catch (cause) {
      // The key is held, whatever has become of the extension.
      return cause instanceof SessionOverError ? undefined : unknownResult(cause);
    }
  }

  #taken(
    request: AcquireRequest,
    { own, oldest }: { readonly own: StoredLock | undefined; readonly oldest: StoredLock },
  ): Taken {
    const { abandonedPlaces, watches } = this.#parts;
    const remainingMs = oldest.value.isHeld ? oldest.value.leaseMs : 0;
    if (!oldest.value.isHeld) abandonedPlaces.onTurn(oldest);
    if (!own) return { kind: 'taken', remainingMs };
    const willBeNotified = watches.watch(own);
    return { kind: 'taken', remainingMs, isQueued: true, ...(willBeNotified && { willBeNotified }) };
  }

  #remember(
    { key, leaseMs, retryWithinMs = 0 }: AcquireRequest,
    { name, session, createRevision, isHeld }: RememberedLock,
  ): void {
    const lastsMs = isHeld ? leaseMs : retryWithinMs;
    const endsAtMs = systemClock.monotonicMs() + lastsMs;
    this.#parts.ownEntries.set({ name, key, session, createRevision, isHeld, leaseMs, endsAtMs });
  }
}

interface PlacedAcquisition extends IndexedAcquisition {
  readonly name: Buffer;
  /** The revision of its place in the queue, if there is one. */
  readonly queuedAt: bigint | undefined;
}

interface Sending {
  readonly session: Session;
  readonly leftMs: () => number;
}

interface AcquisitionOutcome extends Sending {
  readonly name: Buffer;
  readonly reply: AcquisitionReply;
  /** At which the entry was created, if it was granted. */
  readonly revision: bigint;
}

interface RememberedLock {
  readonly name: Buffer;
  readonly session: Session;
  readonly createRevision: bigint;
  readonly isHeld: boolean;
}
