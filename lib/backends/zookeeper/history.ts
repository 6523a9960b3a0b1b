import { MAX_HISTORY_ENTRIES } from '../../core/backend.js';
import { type Deadline, deadlineIn } from '../../core/requests/deadline.js';
import { compareSequences } from './keyspace.js';
import type { ZookeeperClient } from './session/client.js';
import { exists, getChildren, getData, remove } from './wire/operations.js';
import { CODE, unlessCode } from './wire/zookeeper-errors.js';

/** Old entries are removed once there are this many too many. */
const SPARE_ENTRIES = 20;

/** The history of keys: a node for each entry. ZooKeeper numbers those of a key in their order. */
export class History {
  readonly #client: ZookeeperClient;

  constructor(client: ZookeeperClient) {
    this.#client = client;
  }

  async append(key: string, entry: string, timeoutMs: number): Promise<void> {
    const deadline = deadlineIn(timeoutMs);
    const parent = this.#client.keyspace.historyOf(key);
    const node = { path: `${parent}/`, data: Buffer.from(entry), kind: 'persistentSequential' } as const;
    await this.#client.createIn(parent, node, deadline);
    // The entry is written, so a failure here is none of the caller's. The next entry tries again.
    await this.#removeOldest(parent, deadline).catch(() => undefined);
  }

  async read(key: string, timeoutMs: number): Promise<readonly string[]> {
    const deadline = deadlineIn(timeoutMs);
    const parent = this.#client.keyspace.historyOf(key);
    const names = await this.#readNames(parent, deadline);
    const newest = names.reverse().slice(0, MAX_HISTORY_ENTRIES);
    const operations = newest.map((name) => getData(`${parent}/${name}`));
    const replies = await this.#client.readAll(operations, deadline.leftMs);
    const nodes = await Promise.all(replies.map((reply) => unlessCode(reply, CODE.noNode)));
    return nodes.flatMap((node) => (node ? [node.data.toString()] : []));
  }

  /** The oldest first. */
  async #readNames(parent: string, deadline: Deadline): Promise<string[]> {
    const found = await unlessCode(this.#client.read(getChildren(parent), deadline.leftMs), CODE.noNode);
    return (found?.names ?? []).sort((one, other) => compareSequences(Number(one), Number(other)));
  }

  async #removeOldest(parent: string, deadline: Deadline): Promise<void> {
    const { childCount } = await this.#client.call(exists(parent), deadline.leftMs);
    if (childCount <= MAX_HISTORY_ENTRIES + SPARE_ENTRIES) return;
    const names = await this.#readNames(parent, deadline);
    const { session } = this.#client;
    const replies = names
      .slice(0, -MAX_HISTORY_ENTRIES)
      .map((name) => unlessCode(session.send(remove(`${parent}/${name}`)), CODE.noNode));
    await session.await(Promise.all(replies), deadline);
  }
}
