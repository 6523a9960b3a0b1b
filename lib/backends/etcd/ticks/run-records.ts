import type { ReleaseRequest } from '../../../core/backend.js';
import { systemClock } from '../../../core/clock.js';
import { type TickRecord, encodeTickRecord } from '../../../core/tick-record.js';
import type { Keyspace } from '../keyspace.js';
import type { StoredLock } from '../locks/stored-lock.js';
import type { EtcdConnection } from '../rpc/etcd-connection.js';
import type { RequestOp } from '../rpc/messages.js';
import { type Deadline, deadlineIn } from '../../../core/requests/deadline.js';
import { isUnchanged, put, remove, transaction, wasCreatedAt } from '../rpc/operations.js';
import { type TickSnapshot, readSnapshot } from './tick-snapshot.js';

/** Records what becomes of the newest run of a key. */
export class RunRecords {
  readonly #connection: EtcdConnection;
  readonly #keyspace: Keyspace;

  constructor(connection: EtcdConnection, keyspace: Keyspace) {
    this.#connection = connection;
    this.#keyspace = keyspace;
  }

  /**
   * Ends the run and releases its lock in one step. It counts after the lease, too, unless the key was granted again. Returns
   * whether it was this run.
   */
  async end({ key, holder }: ReleaseRequest, timeoutMs: number): Promise<boolean> {
    const deadline = deadlineIn(timeoutMs);
    for (;;) {
      const { record, revision, oldest } = await this.#read(key, deadline);
      const held = oldest?.value.isHeld ? oldest : undefined;
      const isOther = held !== undefined && held.holder !== holder;
      if (record?.holder !== holder || isOther) return false;
      const { holder: _, ...rest } = record;
      const ended = { ...rest, attempt: 0, aliveUntilMs: Math.floor(systemClock.wallMs()) };
      const release =
        held && transaction([wasCreatedAt(held.name, held.createRevision)], [remove({ key: held.name })]);
      const write = put(this.#keyspace.tick(key), encodeTickRecord(ended));
      const operations = release ? [write, release] : [write];
      if (await this.#writeUnlessChanged(key, { revision, operations, deadline })) return true;
    }
  }

  /** The run is alive for as long as its lease. */
  onRenewed({ key, holder }: StoredLock, leaseMs: number, timeoutMs: number): Promise<void> {
    return this.#setAlive(key, holder, {
      isReleased: false,
      untilMs: systemClock.wallMs() + leaseMs,
      timeoutMs,
    });
  }

  /** The lock of the run was released without the end of the run: the run is dead from now on, and its end no longer counts. */
  onReleased({ key, holder }: StoredLock, timeoutMs: number): Promise<void> {
    return this.#setAlive(key, holder, { isReleased: true, untilMs: systemClock.wallMs(), timeoutMs });
  }

  async #setAlive(
    key: string,
    holder: string,
    { isReleased, untilMs, timeoutMs }: AliveUpdate,
  ): Promise<void> {
    const deadline = deadlineIn(timeoutMs);
    for (;;) {
      const { record, revision } = await this.#read(key, deadline);
      if (record?.holder !== holder) return;
      const { holder: _, ...released } = record;
      const alive: TickRecord = {
        ...(isReleased ? released : record),
        aliveUntilMs: Math.floor(untilMs),
      };
      const operations = [put(this.#keyspace.tick(key), encodeTickRecord(alive))];
      if (await this.#writeUnlessChanged(key, { revision, operations, deadline })) return;
    }
  }

  /**
   * In a transaction within another one, as a claim is written: an etcd that has used up its space then accepts both or neither.
   * If it accepted the claim alone, the tick would run again and again.
   */
  async #writeUnlessChanged(key: string, { revision, operations, deadline }: Write): Promise<boolean> {
    const write = transaction([isUnchanged(this.#keyspace.tick(key), revision)], operations);
    const request = { compare: [], success: [write] };
    const { responses } = await this.#connection.call('KV.Txn', request, deadline.leftMs);
    return responses[0]?.response_txn?.succeeded ?? false;
  }

  #read(key: string, deadline: Deadline): Promise<TickSnapshot> {
    return readSnapshot(this.#connection, this.#keyspace, key, deadline.leftMs);
  }
}

interface Write {
  readonly revision: bigint | string;
  readonly operations: readonly RequestOp[];
  readonly deadline: Deadline;
}

interface AliveUpdate {
  readonly isReleased: boolean;
  readonly untilMs: number;
  readonly timeoutMs: number;
}
