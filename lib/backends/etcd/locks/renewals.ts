import type { RenewRequest } from '../../../core/backend.js';
import type { RenewResult } from '../../../core/backend-results.js';
import { systemClock } from '../../../core/clock.js';
import type { Keyspace } from '../keyspace.js';
import type { EtcdConnection } from '../rpc/etcd-connection.js';
import { EtcdError, resultOfError } from '../rpc/etcd-errors.js';
import { isNoneNewer, isUnchanged, keysOf, put, read, transaction } from '../rpc/operations.js';
import type { RunRecords } from '../ticks/run-records.js';
import { type EntryNames, entriesOf } from './entry-names.js';
import type { LockExtension } from './lock-extension.js';
import type { OwnEntries } from './own-entries.js';
import {
  type StoredLock,
  TOKENS_PER_REVISION,
  addedTokenOf,
  encodeValue,
  findLock,
  valueForRewrite,
} from './stored-lock.js';

interface RenewalsParts {
  readonly connection: EtcdConnection;
  readonly keyspace: Keyspace;
  readonly names: EntryNames;
  readonly ownEntries: OwnEntries;
  readonly extension: LockExtension;
  readonly runRecords: RunRecords;
}

const MAX_PER_TRANSACTION = 100;
const LOST = { kind: 'lost' } as const;

interface IndexedRenewal {
  readonly index: number;
  readonly request: RenewRequest;
}

type Report = (index: number, result: RenewResult) => void;

/**
 * Renews locks: makes sure that the lease of their session lasts for long enough, and reads that they are still held. Only a
 * lock that needs a longer lease or more tokens is written.
 */
export class Renewals {
  readonly #parts: RenewalsParts;

  constructor(parts: RenewalsParts) {
    this.#parts = parts;
  }

  /** Never rejects. */
  async renew(requests: readonly RenewRequest[], timeoutMs: number, report: Report): Promise<void> {
    const endsAtMs = systemClock.monotonicMs() + timeoutMs;
    const renewals = requests.map((request, index) => ({ index, request }));
    const calls: Promise<void>[] = [];
    for (let start = 0; start < renewals.length; start += MAX_PER_TRANSACTION) {
      const part = renewals.slice(start, start + MAX_PER_TRANSACTION);
      calls.push(this.#renewAll(part, endsAtMs, report));
    }
    await Promise.all(calls);
  }

  async #renewAll(renewals: readonly IndexedRenewal[], endsAtMs: number, report: Report): Promise<void> {
    const { connection, keyspace } = this.#parts;
    const leftMs = () => Math.max(endsAtMs - systemClock.monotonicMs(), 0);
    try {
      const success = renewals.map(({ request: { key, holder } }) =>
        read(entriesOf(this.#parts, key, holder)),
      );
      const { responses } = await connection.call('KV.Txn', { compare: [], success }, leftMs());
      await Promise.all(
        renewals.map(async ({ index, request }, position) => {
          const stored = findLock(keyspace, keysOf(responses[position]), request.holder);
          const result = await this.#renewOne(request, stored, leftMs).catch(resultOfError);
          report(index, result);
        }),
      );
    } catch (cause) {
      for (const { index } of renewals) report(index, resultOfError(cause));
    }
  }

  async #renewOne(
    request: RenewRequest,
    stored: StoredLock | undefined,
    leftMs: () => number,
  ): Promise<RenewResult> {
    const { ownEntries, extension, runRecords } = this.#parts;
    const { leaseMs, moreTokens = 0 } = request;
    // A lock that is about to be deleted must not be renewed.
    if (!stored?.value.isHeld || ownEntries.isEnding(stored.name)) return LOST;
    const wasOwn = ownEntries.get(stored.name);
    if (!(await extension.extend(stored, leaseMs, leftMs()))) {
      if (ownEntries.isEnding(stored.name) || (wasOwn && !ownEntries.get(stored.name))) return LOST;
      throw new EtcdError('the lock has changed while it was renewed', { hasNoEffect: true });
    }
    if (stored.value.isRun) await runRecords.onRenewed(stored, leaseMs, leftMs()).catch(() => undefined);
    if (moreTokens > 0 && moreTokens <= TOKENS_PER_REVISION)
      return this.#addTokens(stored, moreTokens, leftMs());
    return { kind: 'renewed' };
  }

  /** Adds tokens if nobody waits for the key. */
  async #addTokens(stored: StoredLock, moreTokens: number, timeoutMs: number): Promise<RenewResult> {
    const { keyspace, ownEntries } = this.#parts;
    const session = ownEntries.get(stored.name)?.session;
    // It was just moved to another session, so its revision is no longer known.
    if (!session || session.leaseId !== stored.leaseId) return { kind: 'renewed' };
    const isAlone = isNoneNewer(keyspace.locksOf(stored.key), stored.createRevision);
    const value = encodeValue(valueForRewrite(stored, { moreTokens }));
    const write = put(stored.name, value, session.leaseId);
    const operation = transaction([isUnchanged(stored.name, stored.modRevision), isAlone], [write]);
    const { header, responses } = await session.transact([operation], timeoutMs);
    if (!responses[0]?.response_txn?.succeeded) return { kind: 'renewed' };
    return { kind: 'renewed', fencingToken: addedTokenOf(BigInt(header.revision)) };
  }
}
