import { systemClock } from '../../../core/clock.js';
import type { StoreTime } from '../../../core/requests/store-time.js';
import type { ClaimedTick, TickState } from '../../../core/tick.js';
import { QueueReader } from '../locks/queue-reader.js';
import type { StoredLock } from '../locks/stored-lock.js';
import type { ZookeeperClient } from '../session/client.js';
import { type Operation, create, getData, setData } from '../wire/operations.js';
import { CODE, unlessCode } from '../wire/zookeeper-errors.js';

/** What ZooKeeper keeps about the ticks of a key, as JSON. It stays. Each change is a compare-and-set of its version. */
export interface TickRecord extends ClaimedTick {
  /** The holder of the newest run, until it has ended. */
  readonly holder?: string;
  /** Until then the newest run was alive, by the clock of its process. */
  readonly aliveUntilMs: number;
  readonly isPaused?: true;
}

/** The record of a key, its lock, and the version of the record. */
export interface TickSnapshot {
  readonly record: TickRecord | undefined;
  /** `undefined` if there is no record. */
  readonly version: number | undefined;
  /** The holder of the key, or the caller whose turn it is. */
  readonly oldest: StoredLock | undefined;
}

/** The codes of a write that another one has overtaken. */
export const OVERTAKEN = [CODE.badVersion, CODE.nodeExists, CODE.noNode];

/** Reads and writes the records of ticks. */
export class TickRecords {
  readonly #client: ZookeeperClient;
  readonly #queues: QueueReader;

  constructor(client: ZookeeperClient) {
    this.#client = client;
    this.#queues = new QueueReader(client);
  }

  /** The record is the older part: a lock that was acquired since then has changed it, if it is a run. */
  async read(key: string, time: StoreTime): Promise<TickSnapshot> {
    const path = this.#client.keyspace.tick(key);
    const node = await unlessCode(this.#client.read(getData(path), time.leftMs), CODE.noNode);
    const { oldest } = await this.#queues.read(key, time);
    return {
      record: node && (JSON.parse(node.data.toString()) as TickRecord),
      ...{ version: node?.stat.version, oldest },
    };
  }

  /** Writes the record, if it has not changed since it was read. */
  write(key: string, version: number | undefined, record: TickRecord): Operation<unknown> {
    const path = this.#client.keyspace.tick(key);
    const data = Buffer.from(JSON.stringify(record));
    if (version !== undefined) return setData(path, data, version);
    return create({ path, data, kind: 'persistent', acl: this.#client.acl });
  }
}

/** The claimer's clock counts: ZooKeeper shows its time with changes only. The rest of a lease is at most its length. */
export function tickStateOf({ record, oldest }: TickSnapshot): TickState {
  const nowMs = systemClock.wallMs();
  const heldForMs = oldest?.value.isHeld ? oldest.value.leaseMs : 0;
  return {
    nowMs,
    heldForMs,
    claimed: record && { tickMs: record.tickMs, attempt: record.attempt },
    aliveUntilMs: heldForMs > 0 ? nowMs + heldForMs : (record?.aliveUntilMs ?? 0),
    ...(record?.isPaused && { isPaused: true }),
  };
}
