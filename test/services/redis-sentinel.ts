import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { until } from '../support/until.js';
import { askRedis, fieldsOf } from './ask-redis.js';
import { freePort } from './free-port.js';
import { ensureProgram } from './install.js';
import { ping, startRedis } from './redis-server.js';
import type { Service } from './service.js';
import { startServer } from './start-server.js';

const GROUP = 'locks';
/** Replicas begin to follow at once, not after the 5 s in which more might come. */
const FOLLOW_AT_ONCE = ['--repl-diskless-sync-delay', '0'];

interface Address {
  readonly host: string;
  readonly port: number;
}

/** A primary, two replicas, and three Sentinels that let one of them take over within a second or two. */
export class SentinelGroup {
  static async start(): Promise<SentinelGroup> {
    const group = new SentinelGroup();
    try {
      await group.#start();
      return group;
    } catch (error) {
      await group.stop();
      throw error;
    }
  }

  /** What a client of ioredis takes. */
  readonly name = GROUP;
  readonly sentinels: Address[] = [];
  readonly #servers: Service[] = [];
  /** In the order of their starts, so that who owns a folder goes last. */
  readonly #started: Service[] = [];

  async stop(): Promise<void> {
    for (const service of this.#started.splice(0).reverse()) await service.stop();
  }

  /** The server that the Sentinels name. */
  async primary(): Promise<Service> {
    const port = await this.#primaryPort();
    const server = this.#servers.find((one) => one.port === port);
    if (!server) throw new Error(`Expected the primary to be one of ours, got port ${port}.`);
    return server;
  }

  /** All but the primary. */
  async replicas(): Promise<readonly Service[]> {
    const primary = await this.primary();
    return this.#servers.filter((server) => server !== primary);
  }

  /** Settles once the process is gone, long before another one takes over. */
  async killPrimary(): Promise<Service> {
    const primary = await this.primary();
    primary.kill('SIGKILL');
    await primary.exited;
    this.#servers.splice(this.#servers.indexOf(primary), 1);
    return primary;
  }

  /** Settles once the Sentinels name another server, and it is the primary. */
  async waitForFailover(from: Service): Promise<void> {
    await until(async () => {
      const port = await this.#primaryPort();
      return port !== from.port && (await this.#isPrimary(port).catch(() => false));
    });
  }

  /** Lets a server that was killed follow the present primary, with nothing of what it had. */
  async bringBack(killed: Service): Promise<void> {
    await this.#startReplica(await this.#primaryPort(), killed);
    await this.waitUntilComplete();
  }

  /** Settles once the primary has two replicas, and each Sentinel knows that and both others. */
  async waitUntilComplete(): Promise<void> {
    await this.#waitUntilAllFollow(await this.primary());
    for (const { port } of this.sentinels) {
      await until(() => askRedis(`redis://127.0.0.1:${port}`, isCompleteFor));
    }
  }

  async #start(): Promise<void> {
    const primary = this.#add(await startRedis({ args: FOLLOW_AT_ONCE }));
    await Promise.all([this.#startReplica(primary.port), this.#startReplica(primary.port)]);
    await this.#waitUntilAllFollow(primary);
    const sentinels = [];
    for (let left = 3; left > 0; left -= 1) {
      sentinels.push({ port: await freePort(), id: randomBytes(20).toString('hex') });
    }
    const replicaPorts = this.#servers.slice(1).map(({ port }) => port);
    for (const { port, id } of sentinels) {
      const others = sentinels.filter((other) => other.id !== id);
      const config = configOf({ id, primaryPort: primary.port, replicaPorts, others });
      this.#started.push(await startSentinel(port, config));
      this.sentinels.push({ host: '127.0.0.1', port });
    }
    await this.waitUntilComplete();
  }

  async #startReplica(primaryPort: number, killed?: Service): Promise<void> {
    const args = [...FOLLOW_AT_ONCE, '--replicaof', `127.0.0.1 ${primaryPort}`];
    const place = killed && { port: killed.port, dataDir: killed.dataDir };
    this.#add(await startRedis({ args, ...place }));
  }

  #add(server: Service): Service {
    this.#servers.push(server);
    this.#started.push(server);
    return server;
  }

  async #primaryPort(): Promise<number> {
    const { port } = this.sentinels[0]!;
    const address = await askRedis(`redis://127.0.0.1:${port}`, (sentinel) =>
      sentinel.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', GROUP),
    );
    return Number((address as string[])[1]);
  }

  async #isPrimary(port: number): Promise<boolean> {
    const role = await askRedis(`redis://127.0.0.1:${port}`, (server) => server.role());
    return role[0] === 'master';
  }

  async #waitUntilAllFollow(primary: Service): Promise<void> {
    await until(async () => {
      const info = fieldsOf(await askRedis(primary.url, (admin) => admin.info('replication')));
      return ['slave0', 'slave1'].every((name) => info.get(name)?.includes('state=online'));
    });
  }
}

async function isCompleteFor(sentinel: Parameters<Parameters<typeof askRedis>[1]>[0]): Promise<boolean> {
  const quorum = await sentinel.call('SENTINEL', 'CKQUORUM', GROUP).catch(() => 'none yet');
  const found = (await sentinel.call('SENTINEL', 'REPLICAS', GROUP)) as string[][];
  const isFine = (fields: string[]) =>
    fields[fields.indexOf('flags') + 1] === 'slave' &&
    fields[fields.indexOf('master-link-status') + 1] === 'ok';
  return String(quorum).startsWith('OK 3') && found.filter(isFine).length === 2;
}

interface SentinelView {
  readonly id: string;
  readonly primaryPort: number;
  readonly replicaPorts: readonly number[];
  readonly others: readonly { readonly port: number; readonly id: string }[];
}

/** They know each other from the start: else they would look for each other for seconds. */
const configOf = ({ id, primaryPort, replicaPorts, others }: SentinelView) =>
  [
    `sentinel myid ${id}`,
    `sentinel monitor ${GROUP} 127.0.0.1 ${primaryPort} 2`,
    `sentinel down-after-milliseconds ${GROUP} 500`,
    `sentinel failover-timeout ${GROUP} 1500`,
    `sentinel parallel-syncs ${GROUP} 2`,
    ...replicaPorts.map((port) => `sentinel known-replica ${GROUP} 127.0.0.1 ${port}`),
    ...others.map((other) => `sentinel known-sentinel ${GROUP} 127.0.0.1 ${other.port} ${other.id}`),
    '',
  ].join('\n');

async function startSentinel(port: number, config: string): Promise<Service> {
  return startServer(
    {
      name: 'sentinel',
      file: await ensureProgram('redis-server'),
      stopSignal: 'SIGTERM',
      url: (at) => `redis://127.0.0.1:${at}`,
      prepare: ({ dataDir }) => writeFile(join(dataDir, 'sentinel.conf'), config),
      args: ({ dataDir, port: at }) => [
        join(dataDir, 'sentinel.conf'),
        '--sentinel',
        ...['--bind', '127.0.0.1', '--port', `${at}`, '--dir', dataDir],
      ],
      ask: ping,
    },
    { port },
  );
}
