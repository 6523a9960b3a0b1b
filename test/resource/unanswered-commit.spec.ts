import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { DataSource, type EntitySubscriberInterface } from 'typeorm';
import { withLockedTransaction } from '../../lib/backends/typeorm/index.js';
import type { LockBackend } from '../../lib/core/backend.js';
import type { Locks } from '../../lib/core/locks.js';
import { type AcquireOptions, type Lock, LockLostError } from '../../lib/index.js';
import { FaultProxy } from '../faults/injection/fault-proxy.js';
import { startMariadb } from '../services/mariadb.js';
import { startPostgres } from '../services/postgres.js';
import { bareLocks } from '../support/bare-locks.js';
import { backendOn, dataSourceOptions, postgresStore, redisStore } from '../support/stores.js';
import { until } from '../support/until.js';

/** A server of its own, whose commits can be made to wait for a copy of the database that does not answer. */
interface ReplicatedServer {
  readonly type: 'postgres' | 'mariadb';
  start(): Promise<{ readonly url: string; readonly port: number; stop(): Promise<void> }>;
  /** Makes the COMMIT of the transaction that executes it wait. */
  readonly holdCommit: string;
  readonly letCommit: string;
  /** Lists the commits that wait. */
  readonly waiting: string;
}

const servers: ReplicatedServer[] = [
  {
    type: 'postgres',
    start: () => {
      const settings = ['synchronous_standby_names=away', 'synchronous_commit=local'];
      return startPostgres({ args: settings.flatMap((setting) => ['-c', setting]) });
    },
    holdCommit: 'SET LOCAL synchronous_commit = on',
    letCommit: `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`,
    waiting: `SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'`,
  },
  {
    type: 'mariadb',
    start: async () => {
      const replication = [
        '--rpl-semi-sync-master-timeout=600000',
        '--rpl-semi-sync-master-wait-no-slave=ON',
      ];
      // Others see the rows only after a replica has them.
      const waitPoint = '--rpl-semi-sync-master-wait-point=AFTER_SYNC';
      return startMariadb({ args: ['--log-bin=log', '--server-id=1', ...replication, waitPoint] });
    },
    holdCommit: 'SET GLOBAL rpl_semi_sync_master_enabled = ON',
    letCommit: 'SET GLOBAL rpl_semi_sync_master_enabled = OFF',
    waiting: `SELECT 1 FROM information_schema.PROCESSLIST WHERE STATE LIKE '%semi-sync%'`,
  },
];

describe.each(servers)('the lock of a transaction on $type whose COMMIT was not answered', (replicated) => {
  const { type } = replicated;
  let server: Awaited<ReturnType<ReplicatedServer['start']>>;
  let proxy: FaultProxy;
  let admin: DataSource;
  const backends: LockBackend[] = [];
  let [locks, others]: Locks[] = [];
  beforeAll(async () => {
    server = await replicated.start();
    proxy = await FaultProxy.to(server.port);
    admin = await new DataSource({ type, url: server.url }).initialize();
    await admin.query('CREATE TABLE product (id int primary key, stock int not null)');
    const namespace = randomUUID();
    backends.push(backendOn(redisStore()), backendOn(redisStore()));
    [locks, others] = backends.map((backend) => bareLocks({ backend, namespace }));
  }, 60_000);
  afterEach(() => admin.query(replicated.letCommit));
  afterAll(async () => {
    for (const backend of backends) await backend.close();
    await admin.destroy();
    await proxy.close();
    await server.stop();
  });

  const stockOf = async (id: number) =>
    (await admin.query<[{ stock: number }]>(`SELECT stock FROM product WHERE id = ${id}`))[0].stock;

  /** Sells one in a locked transaction, whose connection is cut while COMMIT waits. */
  async function sellWithoutReply(
    id: number,
    options: AcquireOptions,
    onLock: (lock: Lock) => void = () => undefined,
  ) {
    await admin.query(`INSERT INTO product VALUES (${id}, 10)`);
    const url = new URL(server.url);
    url.port = String(proxy.port);
    const cut = await new DataSource({ type, url: url.href }).initialize();
    try {
      const sold = withLockedTransaction(
        cut,
        `product:${id}`,
        { ...options, locks: locks! },
        async (manager, lock) => {
          onLock(lock);
          await manager.query(`UPDATE product SET stock = 9 WHERE id = ${id}`);
          await manager.query(replicated.holdCommit);
        },
      );
      const error = sold.catch((cause: unknown) => cause);
      await until(async () => (await admin.query<unknown[]>(replicated.waiting)).length > 0);
      proxy.resetAll();
      return await error;
    } finally {
      await cut.destroy();
    }
  }

  it('is not released, because the transaction may still be committed', async () => {
    let lock: Lock | undefined;
    const error = await sellWithoutReply(1, { leaseMs: 600_000 }, (given) => (lock = given));
    expect(error).toBeInstanceOf(LockLostError);
    expect((error as LockLostError).message).toMatch(/no answer to COMMIT.*may or may not be committed/);
    expect((error as LockLostError).cause).toBeInstanceOf(Error);
    expect(lock!.isValid()).toBe(false);
    expect(await stockOf(1)).toBe(10);
    expect(await others!.tryAcquire('product:1')).toBeNull();
    expect(await locks!.tryAcquire('product:1')).toBeNull();
    await admin.query(replicated.letCommit);
    await until(async () => (await stockOf(1)) === 9);
  }, 60_000);

  it('is not released if it is one of several permits, or the lock of the work around it', async () => {
    await sellWithoutReply(3, { leaseMs: 600_000, permits: 1 });
    expect(await others!.tryAcquire('product:3', { permits: 1 })).toBeNull();
    await admin.query(replicated.letCommit);
    const outer = locks!.withLock('product:4', { leaseMs: 600_000 }, () =>
      sellWithoutReply(4, { reentrant: true }),
    );
    await expect(outer).rejects.toThrow(/no answer to COMMIT/);
    expect(await others!.tryAcquire('product:4')).toBeNull();
  }, 60_000);

  it('is free after its lease, which is not renewed', async () => {
    await sellWithoutReply(2, { leaseMs: 5_000 });
    await admin.query(replicated.letCommit);
    const next = await others!.acquire('product:2', { waitMs: Infinity });
    expect(await stockOf(2)).toBe(9);
    await next.release();
  }, 60_000);
});

describe('the lock of a transaction on postgres whose COMMIT has failed', () => {
  let database: DataSource;
  let locks: Locks;
  let backend: LockBackend;
  const table = `product_${randomUUID().replaceAll('-', '')}`;
  beforeAll(async () => {
    database = await new DataSource(dataSourceOptions(postgresStore())).initialize();
    await database.query(`CREATE TABLE ${table} (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)`);
    backend = backendOn(redisStore());
    locks = bareLocks({ backend, namespace: randomUUID() });
  });
  afterAll(async () => {
    await backend.close();
    await database.query(`DROP TABLE ${table}`);
    await database.destroy();
  });

  const insertTwice = () =>
    withLockedTransaction(database, 'k', { locks }, (manager) =>
      manager.query(`INSERT INTO ${table} VALUES (1), (1)`),
    );

  it('is released if the server has answered', async () => {
    await expect(insertTwice()).rejects.toThrow(/unique/);
    expect(await locks.inspect('k')).toBeNull();
  });

  it('is released if only the answer to ROLLBACK shows that the transaction has ended', async () => {
    const refuse = { beforeTransactionCommit: () => Promise.reject(new Error('not this one')) };
    database.subscribers.push(refuse as EntitySubscriberInterface);
    try {
      await expect(insertTwice()).rejects.toThrow('not this one');
      expect(await locks.inspect('k')).toBeNull();
    } finally {
      database.subscribers.pop();
    }
  });
});

describe('the lock of a transaction on postgres for whose COMMIT the driver did not wait', () => {
  const id = randomUUID().replaceAll('-', '');
  const [product, wait] = [`product_${id}`, `wait_${id}`];
  let [admin, database]: DataSource[] = [];
  let locks: Locks;
  let backend: LockBackend;
  beforeAll(async () => {
    const options = dataSourceOptions(postgresStore());
    admin = await new DataSource(options).initialize();
    database = await new DataSource({
      ...options,
      extra: { query_timeout: 3_000 },
    }).initialize();
    backend = backendOn(redisStore());
    locks = bareLocks({ backend, namespace: randomUUID() });
    await admin.query(`CREATE TABLE ${product} (id int)`);
    await admin.query(`CREATE TABLE ${wait} (id int)`);
    // COMMIT waits while another transaction has the table.
    await admin.query(`CREATE FUNCTION ${wait}() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN LOCK TABLE ${wait}; RETURN NULL; END $$`);
    await admin.query(`CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON ${product} DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW EXECUTE FUNCTION ${wait}()`);
  });
  afterAll(async () => {
    await backend.close();
    await database!.destroy();
    for (const table of [product, wait]) await admin!.query(`DROP TABLE ${table}`);
    await admin!.query(`DROP FUNCTION ${wait}`);
    await admin!.destroy();
  });

  it('is released, and the error says that the transaction may be committed', async () => {
    const holder = admin!.createQueryRunner();
    await holder.startTransaction();
    await holder.query(`LOCK TABLE ${wait}`);
    const letCommit = { beforeTransactionRollback: () => holder.commitTransaction() };
    database!.subscribers.push(letCommit as EntitySubscriberInterface);
    const sold = withLockedTransaction(database!, 'k', { locks }, (manager) =>
      manager.query(`INSERT INTO ${product} VALUES (1)`),
    );
    const error: unknown = await sold.catch((cause: unknown) => cause);
    await holder.release();
    expect(error).toBeInstanceOf(LockLostError);
    expect((error as LockLostError).message).toMatch(/no answer to COMMIT.*may or may not be committed/);
    expect(((error as LockLostError).cause as Error).message).toBe('Query read timeout');
    expect(await locks.inspect('k')).toBeNull();
    expect(await admin!.query(`SELECT id FROM ${product}`)).toEqual([{ id: 1 }]);
  }, 60_000);
});
