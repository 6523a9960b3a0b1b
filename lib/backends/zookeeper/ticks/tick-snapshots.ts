import type { Deadline } from '../../../core/requests/deadline.js';
import { type TickRecord, encodeTickRecord } from '../../../core/tick-record.js';
import { QueueReader } from '../locks/queue-reader.js';
import type { StoredLock } from '../locks/stored-lock.js';
import type { ZookeeperClient } from '../session/client.js';
import { decodeJson } from '../stored-json.js';
import { type Operation, create, getData, setData } from '../wire/operations.js';
import { CODE, unlessCode } from '../wire/zookeeper-errors.js';

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

/** Reads and writes the records of ticks. They stay. */
export class TickSnapshots {
  readonly #client: ZookeeperClient;
  readonly #queues: QueueReader;

  constructor(client: ZookeeperClient) {
    this.#client = client;
    this.#queues = new QueueReader(client);
  }

  /** The record is the older part: a lock that was acquired since then has changed it, if it is a run. */
  async read(key: string, deadline: Deadline): Promise<TickSnapshot> {
    const path = this.#client.keyspace.tick(key);
    const node = await unlessCode(this.#client.read(getData(path), deadline.leftMs), CODE.noNode);
    const { oldest } = await this.#queues.read(key, deadline);
    return {
      record: node && (decodeJson(node.data, path) as TickRecord),
      ...{ version: node?.stat.version, oldest },
    };
  }

  /** Writes the record, if it has not changed since it was read. */
  write(key: string, version: number | undefined, record: TickRecord): Operation<unknown> {
    const path = this.#client.keyspace.tick(key);
    const data = encodeTickRecord(record);
    if (version !== undefined) return setData(path, data, version);
    return create({ path, data, kind: 'persistent', acl: this.#client.acl });
  }
}
