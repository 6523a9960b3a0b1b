import type { TickRequest } from '../../../core/backend.js';
import type { AcquireResult } from '../../../core/backend-results.js';
import { systemClock } from '../../../core/clock.js';
import { delay } from '../../../core/real-timers.js';
import { type Deadline, deadlineIn } from '../../../core/requests/deadline.js';
import type { AbandonedPlaces } from '../../../core/requests/abandoned-places.js';
import { judgeTick } from '../../../core/tick.js';
import { type CreatedLock, EntryCreation } from '../locks/entry-creation.js';
import type { LockExtension } from '../locks/lock-extension.js';
import type { OwnEntries } from '../locks/own-entries.js';
import { type StoredLock, encodeValue, firstTokenOf, valueOf } from '../locks/stored-lock.js';
import { type TickRecord, tickStateOf } from '../../../core/tick-record.js';
import type { ZookeeperClient } from '../session/client.js';
import { multi, remove, setData } from '../wire/operations.js';
import {
  CODE,
  SessionOverError,
  resultAfterCreation,
  resultOfError,
  unlessCode,
} from '../wire/zookeeper-errors.js';
import { OVERTAKEN, type TickSnapshots, type TickSnapshot } from './tick-snapshots.js';
import type { TickStates } from './tick-states.js';

interface TickClaimsParts {
  readonly client: ZookeeperClient;
  readonly ownEntries: OwnEntries;
  readonly extension: LockExtension;
  readonly records: TickSnapshots;
  readonly requests: TickStates;
  readonly abandonedPlaces: AbandonedPlaces<StoredLock>;
}

/** Another process claims a tick of the key at this moment. It needs one round trip, unless it has died. */
const MIN_PAUSE_MS = 5;
const MAX_PAUSE_MS = 80;
const DONE = Symbol('done');

/**
 * Claims ticks. A claim first queues for the key: while its entry is the oldest, no other claim is granted. Then one step of the
 * store turns the entry into a lock and writes the record, if that has not changed.
 */
export class TickClaims {
  readonly #parts: TickClaimsParts;
  readonly #creation: EntryCreation;

  constructor(parts: TickClaimsParts) {
    this.#parts = parts;
    this.#creation = new EntryCreation(parts.client, parts.ownEntries);
  }

  /** Never rejects. */
  async claim(request: TickRequest, timeoutMs: number): Promise<AcquireResult> {
    const deadline = deadlineIn(timeoutMs);
    let pauseMs = MIN_PAUSE_MS;
    try {
      for (;;) {
        const result = await this.#try(request, deadline).catch((cause: unknown) => {
          if (cause instanceof SessionOverError) return undefined;
          throw cause;
        });
        if (result) return result;
        // Also lets the time of the request pass.
        await delay(Math.min(pauseMs, deadline.leftMs));
        pauseMs = Math.min(2 * pauseMs, MAX_PAUSE_MS);
      }
    } catch (cause) {
      return resultOfError(cause);
    }
  }

  async #try(request: TickRequest, deadline: Deadline): Promise<AcquireResult | undefined> {
    const { client, ownEntries, records, abandonedPlaces } = this.#parts;
    const snapshot = await records.read(request.key, deadline);
    const { oldest } = snapshot;
    if (oldest?.holder === request.holder && oldest.value.isHeld)
      return this.#grantAgain(request, { ...snapshot, oldest }, deadline);
    const verdict = judgeTick(request.tick, tickStateOf(snapshot));
    if (verdict.kind !== 'grant') return verdict;
    // What an earlier request without a reply has left.
    const own = ownEntries.get(request);
    if (own) await this.#giveUp(await this.#creation.locate(own, deadline), deadline);
    else if (ownEntries.isEnding(request)) return undefined;
    // A claim decides soon. Callers that wait for the key without a tick may take their time.
    if (oldest) {
      if (!oldest.value.isClaim) return { kind: 'taken', remainingMs: 0 };
      abandonedPlaces.onTurn(oldest);
      return undefined;
    }
    const session = await client.ready(deadline);
    return ownEntries.whileInFlight(request, async () => {
      const value = { ...valueOf(request, false), isClaim: true as const };
      const { own: entry, entries } = await this.#creation.create(request, { session, deadline, value });
      const claiming = { version: snapshot.version, attempt: verdict.attempt, deadline };
      const settle = async () => {
        if (entries[0]?.path === entry.path) return this.#take(request, entry, claiming);
        await this.#giveUp(entry, deadline);
        return undefined;
      };
      return settle().catch(resultAfterCreation);
    });
  }

  /** The entry is the oldest of its key. */
  async #take(
    request: TickRequest,
    entry: CreatedLock,
    { version, attempt, deadline }: Claiming,
  ): Promise<AcquireResult | undefined> {
    const { client, ownEntries, records, requests } = this.#parts;
    const { key, holder, leaseMs, tick } = request;
    const { session, path } = entry;
    const value = { ...valueOf(request, true), isRun: true as const };
    const aliveUntilMs = Math.floor(systemClock.wallMs() + leaseMs);
    const claimed: TickRecord = { tickMs: tick.tickMs, attempt, holder, aliveUntilMs };
    const claim = multi([records.write(key, version, claimed), setData(path, encodeValue(value))]);
    const held = { ...entry, value, isHeld: true };
    // If the reply is lost, the release must also record the end of the run.
    ownEntries.set(held);
    const written = session.send(claim).then(() => DONE);
    if ((await session.await(unlessCode(written, ...OVERTAKEN), deadline)) !== DONE) {
      await this.#giveUp(entry, deadline);
      return undefined;
    }
    await session.confirm(leaseMs, deadline.leftMs);
    ownEntries.set({ ...held, endsAtMs: systemClock.monotonicMs() + leaseMs });
    if (tick.cleanUp && !client.isClosed) void requests.cleanUp(tick.cleanUp, deadline.leftMs);
    return { kind: 'granted', fencingToken: firstTokenOf(entry.czxid), attempt };
  }

  async #grantAgain(
    { key, holder, leaseMs }: TickRequest,
    { oldest, record }: TickSnapshot & { readonly oldest: StoredLock },
    deadline: Deadline,
  ): Promise<AcquireResult | undefined> {
    const { client, ownEntries, extension } = this.#parts;
    // An earlier session ends by itself, and the run with it.
    if (oldest.owner !== client.session.id) return { kind: 'taken', remainingMs: oldest.value.leaseMs };
    const { path, czxid, value } = oldest;
    const own = ownEntries.get({ key, holder });
    if (ownEntries.isEnding({ key, holder })) return undefined;
    const lock = { ...{ key, holder, path, czxid, value }, session: client.session, isHeld: true };
    const endsAtMs = Math.max(own?.endsAtMs ?? 0, systemClock.monotonicMs() + leaseMs);
    const held = { ...lock, endsAtMs };
    ownEntries.set(held);
    if (!(await extension.extend(held, leaseMs, deadline))) return undefined;
    return { kind: 'granted', fencingToken: firstTokenOf(czxid), attempt: record?.attempt ?? 1 };
  }

  async #giveUp(entry: CreatedLock | undefined, deadline: Deadline): Promise<void> {
    if (!entry) return;
    const { session } = entry;
    await session.await(unlessCode(session.send(remove(entry.path)), CODE.noNode), deadline);
    this.#parts.ownEntries.remove(entry);
  }
}

interface Claiming {
  /** Of the record; `undefined` if there is none. */
  readonly version: number | undefined;
  readonly attempt: number;
  readonly deadline: Deadline;
}
