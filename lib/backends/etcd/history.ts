import { MAX_HISTORY_ENTRIES } from '../../core/backend.js';
import type { Keyspace } from './keyspace.js';
import { randomId } from './locks/stored-lock.js';
import type { EtcdConnection } from './rpc/etcd-connection.js';
import { count, put, remove } from './rpc/operations.js';
import { type Deadline, deadlineIn } from '../../core/requests/deadline.js';

/** Old entries are removed once there are this many too many. */
const SPARE_ENTRIES = 20;
const NEWEST_FIRST = { sort_order: 'DESCEND', sort_target: 'CREATE' } as const;

/** The history of keys: a key of etcd for each entry, in the order of their revisions. */
export class History {
  readonly #connection: EtcdConnection;
  readonly #keyspace: Keyspace;

  constructor(connection: EtcdConnection, keyspace: Keyspace) {
    this.#connection = connection;
    this.#keyspace = keyspace;
  }

  async append(key: string, entry: string, timeoutMs: number): Promise<void> {
    const deadline = deadlineIn(timeoutMs);
    const all = this.#keyspace.historyOf(key);
    const name = this.#keyspace.historyEntry(key, randomId());
    const request = { compare: [], success: [put(name, Buffer.from(entry)), count(all)] };
    const { responses } = await this.#connection.call('KV.Txn', request, deadline.leftMs);
    const entries = Number(responses[1]?.response_range?.count ?? 0);
    if (entries <= MAX_HISTORY_ENTRIES + SPARE_ENTRIES) return;
    // The entry is written, so a failure here is none of the caller's. The next entry tries again.
    await this.#removeOldest(key, entries, deadline).catch(() => undefined);
  }

  async read(key: string, timeoutMs: number): Promise<readonly string[]> {
    const request = { ...this.#keyspace.historyOf(key), ...NEWEST_FIRST, limit: MAX_HISTORY_ENTRIES };
    const { kvs } = await this.#connection.call('KV.Range', request, timeoutMs);
    return kvs.map(({ value }) => value.toString());
  }

  async #removeOldest(key: string, entries: number, deadline: Deadline): Promise<void> {
    const limit = Math.min(entries - MAX_HISTORY_ENTRIES, MAX_HISTORY_ENTRIES);
    const range = { ...this.#keyspace.historyOf(key), sort_target: 'CREATE', sort_order: 'ASCEND' } as const;
    const { kvs } = await this.#connection.call(
      'KV.Range',
      { ...range, keys_only: true, limit },
      deadline.leftMs,
    );
    const success = kvs.map((oldest) => remove({ key: oldest.key }));
    await this.#connection.call('KV.Txn', { compare: [], success }, deadline.leftMs);
  }
}
