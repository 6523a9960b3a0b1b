import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { DataSource } from 'typeorm';
import { ensureBetterSqlite3 } from '../services/better-sqlite3.js';
import { etcdctl, startEtcd } from '../services/etcd.js';
import { startMariadb } from '../services/mariadb.js';
import { startPostgres } from '../services/postgres.js';
import { startRedis } from '../services/redis-server.js';
import type { Service } from '../services/service.js';
import { startZookeeper } from '../services/zookeeper.js';
import { hostOf } from '../support/etcd.js';
import { onZookeeper, removeAll } from '../support/zookeeper.js';
import { DEFAULT_PATH } from '../../lib/backends/zookeeper/zookeeper-options.js';
import type { StoreName, Stores } from './contender.js';
import { CURATOR_PATH } from './contenders/curator-recipe.js';
import { pin } from './pin.js';

/** The services of the tests never wait for the disk; a bench shows what users get, so commits are durable here. */
const DURABLE_POSTGRES = ['-c', 'fsync=on', '-c', 'full_page_writes=on'];
const DURABLE_MARIADB = ['--innodb-flush-log-at-trx-commit=1'];
const DURABLE_ZOOKEEPER = ['-Dzookeeper.forceSync=yes'];

/** So many independent servers make a quorum. */
const QUORUM = 5;

/** Private servers for the bench, which is alone on them. */
export class BenchStores {
  readonly #services: readonly Service[];
  readonly #stores: Stores;
  readonly #folder: string;
  #files = 0;

  private constructor(services: readonly Service[], stores: Stores, folder: string) {
    this.#services = services;
    this.#stores = stores;
    this.#folder = folder;
  }

  static async open(): Promise<BenchStores> {
    const driver = await ensureBetterSqlite3();
    const starting = await Promise.allSettled([
      startRedis(),
      startPostgres({ args: DURABLE_POSTGRES }),
      startMariadb({ args: DURABLE_MARIADB }),
      startEtcd(),
      startZookeeper({}, { javaArgs: DURABLE_ZOOKEEPER }),
      ...Array.from({ length: QUORUM }, () => startRedis()),
    ]);
    const services = starting.filter((one) => one.status === 'fulfilled').map(({ value }) => value);
    const failure = starting.find((one) => one.status === 'rejected');
    if (failure) {
      await Promise.all(services.map((service) => service.stop()));
      throw failure.reason;
    }
    const urls = services.map(({ url }) => url) as [string, string, string, string, string];
    const [redis, postgres, mariadb, etcd, zookeeper, ...quorum] = urls;
    const folder = await mkdtemp(join(tmpdir(), 'bench-'));
    return new BenchStores(
      services,
      { redis, quorum, postgres, mariadb, etcd: hostOf(etcd), zookeeper, sqlite: { driver, file: '' } },
      folder,
    );
  }

  /** The stores, of which this one is empty. */
  async clean(store: StoreName): Promise<Stores> {
    const { redis, quorum, postgres, mariadb, etcd, zookeeper, sqlite } = this.#stores;
    if (store === 'redis') await flush(redis);
    if (store === 'quorum') await Promise.all(quorum.map(flush));
    if (store === 'postgres') await run({ type: 'postgres', url: postgres }, EMPTY_POSTGRES);
    if (store === 'etcd') await etcdctl(`--endpoints=${etcd}`, 'del', '--prefix', '');
    if (store === 'zookeeper')
      await onZookeeper(zookeeper, async (client) => {
        for (const path of [DEFAULT_PATH, CURATOR_PATH]) await removeAll(client, path);
      });
    if (store === 'mariadb') await run({ type: 'mariadb', url: mariadb }, EMPTY_MARIADB);
    this.#files += 1;
    return { ...this.#stores, sqlite: { ...sqlite, file: join(this.#folder, `${this.#files}.db`) } };
  }

  async pin(cores: string): Promise<void> {
    await Promise.all(this.#services.map(({ pid }) => pin(pid, cores)));
  }

  async close(): Promise<void> {
    await Promise.all(this.#services.map((service) => service.stop()));
    await rm(this.#folder, { recursive: true, force: true });
  }
}

const EMPTY_POSTGRES = ['DROP SCHEMA public CASCADE', 'CREATE SCHEMA public', 'CHECKPOINT'];
const EMPTY_MARIADB = ['DROP DATABASE `lock`', 'CREATE DATABASE `lock`'];

async function flush(url: string): Promise<void> {
  const client = new Redis(url);
  await client.flushall();
  client.disconnect();
}

async function run(options: { type: 'postgres' | 'mariadb'; url: string }, statements: readonly string[]) {
  const database = await new DataSource(options).initialize();
  for (const statement of statements) await database.query(statement);
  await database.destroy();
}
