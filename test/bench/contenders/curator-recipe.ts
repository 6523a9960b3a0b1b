import { randomUUID } from 'node:crypto';
import { deadlineIn } from '../../../lib/core/requests/deadline.js';
import type { ZookeeperClient } from '../../../lib/backends/zookeeper/session/client.js';
import { create, getChildren, remove } from '../../../lib/backends/zookeeper/wire/operations.js';
import { CODE, codeOf, unlessCode } from '../../../lib/backends/zookeeper/wire/zookeeper-errors.js';
import { openZookeeperClient } from '../../support/zookeeper.js';
import type { Contender, Held } from '../contender.js';

const TIMEOUT_MS = 10_000;
const SEQUENCE_DIGITS = 10;
const NO_DATA = Buffer.alloc(0);
/** The containers of its locks are in this node, as the path of a mutex of Curator names it. */
export const CURATOR_PATH = '/curator';

/**
 * The `InterProcessMutex` of Apache Curator: an ephemeral sequential node for each caller, the lowest one holds the lock, and each
 * caller watches the node before its own. Over the same client as ours.
 *
 * @see https://curator.apache.org/docs/recipes-shared-reentrant-lock
 * @see https://zookeeper.apache.org/doc/current/recipes.html, “Locks”
 */
class RecipeMutex {
  readonly #client: ZookeeperClient;
  readonly #waiting = new Map<string, () => void>();

  constructor(client: ZookeeperClient) {
    this.#client = client;
    client.onNotice((path) => {
      this.#waiting.get(path)?.();
      this.#waiting.delete(path);
    });
  }

  async acquire(name: string): Promise<Held> {
    const parent = `${CURATOR_PATH}/${name}`;
    const own = await this.#createNode(parent);
    for (;;) {
      const { names } = await this.#client.call(getChildren(parent), TIMEOUT_MS);
      const bySequence = names.toSorted((a, b) => sequenceOf(a).localeCompare(sequenceOf(b)));
      const index = bySequence.indexOf(own.slice(parent.length + 1));
      if (index < 0) throw new Error('the session has ended');
      if (index === 0) return { release: () => this.#client.call(remove(own), TIMEOUT_MS) };
      await this.#waitForEnd(`${parent}/${bySequence[index - 1]}`);
    }
  }

  async #createNode(parent: string): Promise<string> {
    const { acl } = this.#client;
    const path = `${parent}/_c_${randomUUID()}-lock-`;
    const node = create({ path, data: NO_DATA, kind: 'ephemeralSequential', acl });
    for (;;) {
      const created = await unlessCode(this.#client.call(node, TIMEOUT_MS), CODE.noNode);
      if (created) return created.path;
      for (const container of [CURATOR_PATH, parent])
        await this.#client.createContainer(this.#client.session, container, deadlineIn(TIMEOUT_MS));
    }
  }

  async #waitForEnd(path: string): Promise<void> {
    const ended = new Promise<void>((resolve) => this.#waiting.set(path, resolve));
    try {
      await this.#client.call(getChildren(path, true), TIMEOUT_MS);
    } catch (error) {
      this.#waiting.delete(path);
      if (codeOf(error) === CODE.noNode) return;
      throw error;
    }
    await ended;
  }
}

const sequenceOf = (name: string): string => name.slice(-SEQUENCE_DIGITS);

export const all: readonly Contender[] = [
  {
    name: 'Curator recipe',
    store: 'zookeeper',
    kind: 'floor',
    async open({ stores }) {
      const client = openZookeeperClient(stores.zookeeper);
      // The session is in use all the time.
      client.isInUse = () => true;
      const mutex = new RecipeMutex(client);
      return { acquire: (name) => mutex.acquire(name), close: () => client.close(true) };
    },
  },
];
