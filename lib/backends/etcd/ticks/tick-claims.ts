import type { TickRequest } from '../../../core/backend.js';
import type { AcquireResult } from '../../../core/backend-results.js';
import { systemClock } from '../../../core/clock.js';
import { rejectWhenRefused } from '../../../core/requests/store-timeout.js';
import { type KeyCleanUp, type TickState, judgeTick, resumedTick } from '../../../core/tick.js';
import {
  type TickRecord,
  encodeTickRecord,
  isOutdated,
  pausedRecordOf,
  tickStateOf,
} from '../../../core/tick-record.js';
import { decodeJson } from '../stored-json.js';
import type { Keyspace } from '../keyspace.js';
import type { EntryNames } from '../locks/entry-names.js';
import type { LockExtension } from '../locks/lock-extension.js';
import type { OwnEntries } from '../locks/own-entries.js';
import { encodeValue, firstTokenOf, valueOf } from '../locks/stored-lock.js';
import type { EtcdConnection } from '../rpc/etcd-connection.js';
import { hasNoEffect, resultOfError } from '../rpc/etcd-errors.js';
import { isEmpty, isUnchanged, put, remove, transaction } from '../rpc/operations.js';
import { type Deadline, deadlineIn } from '../../../core/requests/deadline.js';
import { type Session, SessionOverError } from '../session/session.js';
import type { Sessions } from '../session/sessions.js';
import { type TickSnapshot, readSnapshot } from './tick-snapshot.js';

interface TickClaimsParts {
  readonly connection: EtcdConnection;
  readonly keyspace: Keyspace;
  readonly names: EntryNames;
  readonly sessions: Sessions;
  readonly ownEntries: OwnEntries;
  readonly extension: LockExtension;
}

/** The lease of the session that fences late pauses off. */
const PAUSE_LEASE_MS = 5_000;
const MAX_REMOVED = 100;

/** Claims, registers, pauses and resumes the ticks of a key: reads its record, and writes it if it has not changed since. */
export class TickClaims {
  readonly #parts: TickClaimsParts;

  constructor(parts: TickClaimsParts) {
    this.#parts = parts;
  }

  /** Never rejects. */
  async claim(request: TickRequest, timeoutMs: number): Promise<AcquireResult> {
    const deadline = deadlineIn(timeoutMs);
    try {
      for (;;) {
        const result = await unlessSessionOver(this.#tryClaim(request, deadline));
        if (result) return result;
      }
    } catch (cause) {
      return resultOfError(cause);
    }
  }

  async read(key: string, timeoutMs: number): Promise<TickState> {
    return tickStateOf(await this.#read(key, deadlineIn(timeoutMs)));
  }

  async register(key: string, timeoutMs: number): Promise<TickState> {
    const { connection, keyspace } = this.#parts;
    const deadline = deadlineIn(timeoutMs);
    for (;;) {
      const snapshot = await this.#read(key, deadline);
      const state = tickStateOf(snapshot);
      if (state.claimed) return state;
      const record = { ...resumedTick(state), aliveUntilMs: 0 };
      const request = {
        compare: [isUnchanged(keyspace.tick(key), snapshot.revision)],
        success: [put(keyspace.tick(key), encodeTickRecord(record))],
      };
      if ((await connection.call('KV.Txn', request, deadline.leftMs)).succeeded) return state;
    }
  }

  setPaused(key: string, isPaused: boolean, timeoutMs: number): Promise<void> {
    let used: Session | undefined;
    return rejectWhenRefused(systemClock, timeoutMs, async (onSend) => {
      const deadline = deadlineIn(timeoutMs);
      const onSession = (session: Session) => {
        used = session;
        onSend();
      };
      try {
        const pause = { key, isPaused, deadline, onSession };
        while (!(await unlessSessionOver(this.#trySetPaused(pause))));
      } catch (cause) {
        if (used) await waitUntilFenced(used);
        throw cause;
      }
    });
  }

  /** Deletes the records of ticks that can no longer be claimed, once a newer one was granted. Never rejects. */
  async cleanUp({ fromKey, beforeKey, afterMs }: KeyCleanUp, timeoutMs: number): Promise<void> {
    const { connection, keyspace } = this.#parts;
    try {
      const range = { ...keyspace.ticksBetween(fromKey, beforeKey), limit: MAX_REMOVED };
      const { kvs } = await connection.call('KV.Range', range, timeoutMs);
      const old = kvs.filter((entry) => isOutdated(decodeJson(entry) as TickRecord, afterMs));
      if (old.length === 0) return;
      // A record is kept while its run lasts.
      const success = old.map(({ key, mod_revision }) =>
        transaction(
          [isUnchanged(key, mod_revision), isEmpty(keyspace.locksOf(keyspace.keyOfTick(key)))],
          [remove({ key })],
        ),
      );
      await connection.call('KV.Txn', { compare: [], success }, timeoutMs);
    } catch {
      // The records do no harm, and the next grant tries again.
    }
  }

  /** Returns `undefined` if the key has changed meanwhile. */
  async #tryClaim(request: TickRequest, deadline: Deadline): Promise<AcquireResult | undefined> {
    const { names, extension } = this.#parts;
    const { key, holder, leaseMs, tick } = request;
    const name = names.find(key, holder);
    if (name) await this.#waitUntilDeleted(name, deadline);
    const snapshot = await this.#read(key, deadline);
    const { record, oldest } = snapshot;
    if (oldest?.holder === holder && oldest.value.isHeld) {
      if (!(await extension.extend(oldest, leaseMs, deadline.leftMs))) return undefined;
      return {
        kind: 'granted',
        fencingToken: firstTokenOf(oldest.createRevision),
        attempt: record?.attempt ?? 1,
      };
    }
    const verdict = judgeTick(tick, tickStateOf(snapshot));
    if (verdict.kind !== 'grant') return verdict;
    // Callers wait for the key without a tick. It is their turn.
    if (oldest) return { kind: 'taken', remainingMs: 0 };
    return this.#sendClaim(request, { attempt: verdict.attempt, revision: snapshot.revision, deadline });
  }

  async #sendClaim(request: TickRequest, claim: Claim): Promise<AcquireResult | undefined> {
    const { names, sessions, ownEntries } = this.#parts;
    const session = sessions.get(request.leaseMs);
    await session.prepare(request.leaseMs, claim.deadline.leftMs);
    const name = names.nameOf(request.key, request.holder);
    if (this.#isEnding(name)) return undefined;
    return ownEntries.whileInFlight([name], () => this.#transactClaim(request, { ...claim, name, session }));
  }

  async #transactClaim(
    request: TickRequest,
    {
      name,
      session,
      attempt,
      revision,
      deadline,
    }: Claim & { readonly name: Buffer; readonly session: Session },
  ): Promise<AcquireResult | undefined> {
    const { keyspace, ownEntries } = this.#parts;
    const { key, holder, leaseMs, tick } = request;
    const value = encodeValue({ ...valueOf(request, true), isRun: true });
    const claimed: TickRecord = {
      ...{ tickMs: tick.tickMs, attempt, holder },
      aliveUntilMs: Math.floor(systemClock.wallMs() + leaseMs),
    };
    const claim = transaction(
      [isUnchanged(keyspace.tick(key), revision), isEmpty(keyspace.locksOf(key))],
      [put(name, value, session.leaseId), put(keyspace.tick(key), encodeTickRecord(claimed))],
    );
    const { header, responses } = await session.transact([claim], deadline.leftMs).catch((cause: unknown) => {
      if (!hasNoEffect(cause)) ownEntries.markUnknown({ name, key, session, leaseMs });
      throw cause;
    });
    if (!responses[0]?.response_txn?.succeeded) return undefined;
    const createRevision = BigInt(header.revision);
    const endsAtMs = systemClock.monotonicMs() + leaseMs;
    ownEntries.set({ name, key, session, createRevision, isHeld: true, leaseMs, endsAtMs });
    if (tick.cleanUp) void this.cleanUp(tick.cleanUp, deadline.leftMs);
    return { kind: 'granted', fencingToken: firstTokenOf(createRevision), attempt };
  }

  /** What is left of an earlier claim of this holder is deleted once it has ended. The deletion would also end a new grant. */
  async #waitUntilDeleted(name: Buffer, deadline: Deadline): Promise<void> {
    while (this.#isEnding(name) && deadline.leftMs > 0) await pauseBriefly();
  }

  #isEnding(name: Buffer): boolean {
    const { ownEntries } = this.#parts;
    // `get` also notices that the time of the lock is over.
    ownEntries.get(name);
    return ownEntries.isEnding(name);
  }

  /** Returns whether the job is paused or resumed now. If not, its record has changed meanwhile. */
  async #trySetPaused({ key, isPaused, deadline, onSession }: Pause): Promise<boolean> {
    const { keyspace, sessions } = this.#parts;
    const snapshot = await this.#read(key, deadline);
    const record = pausedRecordOf(snapshot, isPaused);
    if (!record) return true;
    const session = sessions.get(PAUSE_LEASE_MS);
    // No lock comes of it, so the lease need not last. But earlier transactions must not take effect after this one.
    await session.prepare(0, deadline.leftMs);
    const write = put(keyspace.tick(key), encodeTickRecord(record));
    onSession(session);
    const operation = transaction([isUnchanged(keyspace.tick(key), snapshot.revision)], [write]);
    const { responses } = await session.transact([operation], deadline.leftMs);
    return responses[0]?.response_txn?.succeeded ?? false;
  }

  #read(key: string, deadline: Deadline): Promise<TickSnapshot> {
    const { connection, keyspace } = this.#parts;
    return readSnapshot(connection, keyspace, key, deadline.leftMs);
  }
}

interface Claim {
  readonly attempt: number;
  /** Of the record of the key. */
  readonly revision: string;
  readonly deadline: Deadline;
}

interface Pause {
  readonly key: string;
  readonly isPaused: boolean;
  readonly deadline: Deadline;
  /** Called before something is sent that may take effect later. */
  readonly onSession: (session: Session) => void;
}

/** The result of a try; `undefined` if its session has ended. Then it had no effect, and another session may do. */
const unlessSessionOver = <T>(attempt: Promise<T>): Promise<T | undefined> =>
  attempt.catch((cause: unknown) => {
    if (cause instanceof SessionOverError) return undefined;
    throw cause;
  });

/** A pause that arrives later would undo a later resumption. It is refused once the session is fenced or over. */
async function waitUntilFenced(session: Session): Promise<void> {
  const untilMs = systemClock.monotonicMs() + session.ttlMs + PAUSE_LEASE_MS;
  while (session.hasOpenOutcomes && systemClock.monotonicMs() < untilMs)
    await session.fenceOff(PAUSE_LEASE_MS / 5).catch(() => pauseBriefly());
}

const pauseBriefly = () => new Promise<void>((resolve) => systemClock.after(100, resolve, { awaited: true }));
