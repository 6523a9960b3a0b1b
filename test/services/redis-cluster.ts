import { until } from '../support/until.js';
import { askRedis, fieldsOf } from './ask-redis.js';
import { startRedis } from './redis-server.js';
import type { Service } from './service.js';

const SLOTS = 16_384;
const PRIMARIES = 3;
const ARGS = [
  ...['--cluster-enabled', 'yes', '--cluster-announce-ip', '127.0.0.1', '--cluster-node-timeout', '1000'],
  ...['--repl-diskless-sync-delay', '0'],
];

interface Node {
  readonly service: Service;
  readonly id: string;
}

/** Three primaries with a replica each, which takes over within two or three seconds. */
export class RedisCluster {
  static async start(): Promise<RedisCluster> {
    const cluster = new RedisCluster();
    try {
      await cluster.#start();
      return cluster;
    } catch (error) {
      await cluster.stop();
      throw error;
    }
  }

  readonly #nodes: Node[] = [];
  /** In the order of their starts, so that who owns a folder goes last. */
  readonly #started: Service[] = [];

  /** What a Cluster client of ioredis takes. */
  get addresses(): readonly { host: string; port: number }[] {
    return this.#nodes.map(({ service }) => ({ host: '127.0.0.1', port: service.port }));
  }

  get services(): readonly Service[] {
    return this.#nodes.map(({ service }) => service);
  }

  async stop(): Promise<void> {
    for (const service of this.#started.splice(0).reverse()) await service.stop();
  }

  /** Those that hold slots, as all that live agree. */
  async primaries(): Promise<readonly Service[]> {
    const lines = await this.#nodesSeenBy(this.#nodes[0]!);
    const isPrimary = ({ id }: Node) => lines.some((line) => line.startsWith(id) && /\bmaster - /.test(line));
    return this.#nodes.filter(isPrimary).map(({ service }) => service);
  }

  /** Who serves a slot, by what the node itself says. */
  async ownerOf(slot: number): Promise<Service> {
    const [owner] = await this.#ownerOf(slot);
    return owner.service;
  }

  /** Settles once the process is gone, long before its replica takes over. */
  async kill(service: Service): Promise<void> {
    service.kill('SIGKILL');
    await service.exited;
    const at = this.#nodes.findIndex((node) => node.service === service);
    this.#nodes.splice(at, 1);
  }

  /** Settles once all that live say that every slot is served, and by nodes that live. */
  async waitUntilHealthy(): Promise<void> {
    await until(async () => {
      const looks = await Promise.all(this.#nodes.map((node) => this.#isHealthyFor(node)));
      return looks.every(Boolean);
    });
  }

  /** Who was killed a moment ago still serves its slots, as the others see it. */
  async #isHealthyFor(node: Node): Promise<boolean> {
    const state = fieldsOf(await ask(node, async (admin) => String(await admin.call('CLUSTER', 'INFO'))));
    const owners = (await this.#nodesSeenBy(node)).map((line) => line.split(' ')).filter(servesSlots);
    const isOfUs = ([id]: readonly string[]) => this.#nodes.some((one) => one.id === id);
    return state.get('cluster_state') === 'ok' && owners.length === PRIMARIES && owners.every(isOfUs);
  }

  /** Lets a node that was killed follow the node that took over, with the identity that it had. */
  async bringBack(killed: Service): Promise<void> {
    const again = await startRedis({ args: ARGS, port: killed.port, dataDir: killed.dataDir });
    await this.#add(again);
    await until(async () => (await askRedis(again.url, (admin) => admin.role()))[0] === 'slave');
    await this.#waitUntilAllFollow();
  }

  /** Makes a slot move and stops half way, until told to go on. */
  async beginMove(slot: number): Promise<() => Promise<void>> {
    const [from, primaries] = await this.#ownerOf(slot);
    const to = primaries.find(({ id }) => id !== from.id)!;
    await ask(to, (admin) => admin.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', from.id));
    await ask(from, (admin) => admin.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', to.id));
    return async () => {
      await ask(from, async (admin) => {
        for (;;) {
          const keys = (await admin.call('CLUSTER', 'GETKEYSINSLOT', slot, 10)) as string[];
          if (keys.length === 0) break;
          await admin.call('MIGRATE', '127.0.0.1', to.service.port, '', 0, 5_000, 'KEYS', ...keys);
        }
      });
      for (const node of [to, from, ...primaries]) {
        await ask(node, (admin) => admin.call('CLUSTER', 'SETSLOT', slot, 'NODE', to.id));
      }
    };
  }

  async #start(): Promise<void> {
    const services = await Promise.all(
      Array.from({ length: 2 * PRIMARIES }, () => startRedis({ args: ARGS })),
    );
    for (const service of services) await this.#add(service);
    const [first, ...others] = this.#nodes as [Node, ...Node[]];
    for (const [epoch, node] of this.#nodes.entries()) {
      await ask(node, (admin) => admin.call('CLUSTER', 'SET-CONFIG-EPOCH', epoch + 1));
    }
    for (const { service } of others) {
      await ask(first, (admin) => admin.call('CLUSTER', 'MEET', '127.0.0.1', service.port));
    }
    const primaries = this.#nodes.slice(0, PRIMARIES);
    for (const [index, primary] of primaries.entries()) {
      const [from, to] = [index, index + 1].map((part) => Math.floor((SLOTS * part) / PRIMARIES));
      await ask(primary, (admin) => admin.call('CLUSTER', 'ADDSLOTSRANGE', from!, to! - 1));
    }
    await until(async () => {
      const seen = await Promise.all(this.#nodes.map((node) => this.#nodesSeenBy(node)));
      return seen.every(
        (lines) => lines.filter((line) => line.includes(' connected')).length === 2 * PRIMARIES,
      );
    });
    for (const [index, replica] of this.#nodes.slice(PRIMARIES).entries()) {
      await ask(replica, (admin) => admin.call('CLUSTER', 'REPLICATE', primaries[index]!.id));
    }
    await this.#waitUntilAllFollow();
    await this.waitUntilHealthy();
  }

  async #add(service: Service): Promise<void> {
    this.#started.push(service);
    const id = String(await askRedis(service.url, (admin) => admin.call('CLUSTER', 'MYID')));
    this.#nodes.push({ service, id });
  }

  async #nodesSeenBy(node: Node): Promise<readonly string[]> {
    const text = String(await ask(node, (admin) => admin.call('CLUSTER', 'NODES')));
    return text.split('\n').filter((line) => line !== '');
  }

  /** The owner of a slot, and all primaries. */
  async #ownerOf(slot: number): Promise<[Node, readonly Node[]]> {
    const primaries: Node[] = [];
    let owner: Node | undefined;
    for (const node of this.#nodes) {
      const own = (await this.#nodesSeenBy(node)).find((line) => line.includes('myself'))!.split(' ');
      if (!own[2]!.includes('master')) continue;
      primaries.push(node);
      const ranges = own.slice(8).filter((range) => !range.startsWith('['));
      const isIn = (range: string) => {
        const [from, to = from] = range.split('-').map(Number);
        return from! <= slot && slot <= to!;
      };
      if (ranges.some(isIn)) owner = node;
    }
    if (!owner) throw new Error(`Expected a node that serves slot ${slot}, found none.`);
    return [owner, primaries];
  }

  async #waitUntilAllFollow(): Promise<void> {
    for (const node of this.#nodes) {
      await until(async () => {
        const info = fieldsOf(await ask(node, (admin) => admin.info('replication')));
        return info.get('role') === 'slave'
          ? info.get('master_link_status') === 'up'
          : info.get('slave0')?.includes('state=online') === true;
      });
    }
  }
}

const ask = <T>({ service }: Node, question: Parameters<typeof askRedis<T>>[1]) =>
  askRedis(service.url, question);

/** From the fields of a line of CLUSTER NODES. */
const servesSlots = ([, , flags = '', , , , , , ...slots]: readonly string[]) =>
  /(^|,)master$/.test(flags) && slots.length > 0;
