import { randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { DataSource } from 'typeorm';
import { databaseOptions } from '../database/database.options.js';
import { lockTable } from '../locks/lock.options.js';
import { CrontabJob } from '../dispatch/crontab-job.entity.js';
import { Dispatch } from '../dispatch/dispatch.entity.js';
import { Order } from '../orders/order.entity.js';
import { Product } from '../orders/product.entity.js';
import { Report } from '../report/report.entity.js';
import { Settings } from '../settings/settings.js';
import { CATALOGUE } from './catalogue.js';
import { newCrontab } from './dispatches.js';
import { RedisLocks } from './redis-locks.js';

/** What the tables tell after a run. */
export interface ShopRecords {
  readonly products: readonly Product[];
  readonly orders: readonly Order[];
  readonly reports: readonly Report[];
  /** In the order in which they were written. */
  readonly dispatches: readonly Dispatch[];
}

/** The data of one run: made before the replicas start, removed when they have ended. */
export class Warehouse implements AsyncDisposable {
  /** @throws Error if the settings are wrong or a server does not answer */
  static async open({ withoutLock }: { withoutLock: boolean }): Promise<Warehouse> {
    const run = `flash_sale_${randomBytes(4).toString('hex')}`;
    const warehouse = new Warehouse({
      SAMPLE_RUN: run,
      SAMPLE_FILE: join(tmpdir(), run, 'shop.sqlite'),
      SAMPLE_WITHOUT_LOCK: String(withoutLock),
    });
    try {
      await warehouse.#stock();
      return warehouse;
    } catch (cause) {
      await warehouse[Symbol.asyncDispose]();
      const { backend } = warehouse.settings;
      throw new Error(`Could not open the shop on ${backend}: ${formatReason(cause)}`, { cause });
    }
  }

  readonly settings: Settings;
  readonly #dataSource: DataSource;
  readonly #redisLocks: RedisLocks | undefined;

  /** @param environment what the replicas must know to work with this data */
  private constructor(readonly environment: Readonly<Record<string, string>>) {
    this.settings = new Settings({ ...process.env, ...environment });
    this.#dataSource = new DataSource(databaseOptions(this.settings));
    if (this.settings.backend === 'redis') this.#redisLocks = new RedisLocks(this.settings);
  }

  async read(): Promise<ShopRecords> {
    const { manager } = this.#dataSource;
    return {
      products: await manager.find(Product),
      orders: await manager.find(Order),
      reports: await manager.find(Report),
      dispatches: await manager.find(Dispatch, { order: { id: 'ASC' } }),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#redisLocks?.remove();
    if (this.#dataSource.isInitialized) await this.#dropTables();
    await rm(dirname(this.settings.file), { recursive: true, force: true });
  }

  /** Before the replicas start, which might get into each other's way if all of them created the tables. */
  async #stock(): Promise<void> {
    await this.#redisLocks?.connect();
    await this.#dataSource.initialize();
    await this.#dataSource.synchronize();
    const products = Object.entries(CATALOGUE).map(([name, stock]) => ({ name, stock }));
    await this.#dataSource.manager.insert(Product, products);
    await this.#dataSource.manager.insert(CrontabJob, newCrontab());
  }

  async #dropTables(): Promise<void> {
    const tables = this.#dataSource.entityMetadatas.map(({ tableName }) => tableName);
    const runner = this.#dataSource.createQueryRunner();
    for (const table of [...tables, lockTable(this.settings)]) await runner.dropTable(table, true);
    await runner.release();
    await this.#dataSource.destroy();
  }
}

/** Where every address of a host refused, Node gives an error that has no message but a code. */
function formatReason(cause: unknown): string {
  const { message, code } = cause as NodeJS.ErrnoException;
  return message || (code ?? 'nothing');
}
