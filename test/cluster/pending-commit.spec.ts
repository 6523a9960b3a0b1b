import { randomUUID } from 'node:crypto';
import { Socket } from 'node:net';
import { expect, it } from 'vitest';
import { DataSource } from 'typeorm';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import { startPgbouncer } from '../services/pgbouncer.js';
import type { LockBackend } from '../../lib/index.js';
import { FaultProxy } from '../faults/injection/fault-proxy.js';
import { startMariadb } from '../services/mariadb.js';
import { startPostgres } from '../services/postgres.js';
import { serviceUrl } from '../support/environment.js';
import { until } from '../support/until.js';

/** What an acquisition of a new key came to within a second. */
async function acquireOn(backend: LockBackend) {
  const request = { key: randomUUID(), holder: randomUUID(), leaseMs: 60_000, instance: 'spec' };
  return (await backend.execute({ acquire: [request] }, 1_000)).acquire[0]!.kind;
}

/** Port 1 of this machine, where nothing listens. */
const NO_ADDRESS = { host: '127.0.0.1', port: 1, username: 'lock', database: 'lock' };

/** As a connector of a cloud or an SSH tunnel gives it: a stream instead of an address. */
function streamTo(port: number): Socket {
  const socket = new Socket();
  const connect = socket.connect.bind(socket);
  socket.connect = () => connect(port, '127.0.0.1');
  return socket;
}

it.each(['directly', 'through PgBouncer', 'over a stream of the application'])(
  'a commit that waits for a standby leaves no process in the server after its timeout, %s',
  async (way) => {
    const server = await startPostgres();
    const file = serviceUrl('TEST_PGBOUNCER');
    const pooler =
      way === 'through PgBouncer' ? await startPgbouncer({ file, server: server.url }) : undefined;
    const database = await new DataSource({ type: 'postgres', url: server.url }).initialize();
    const url = pooler?.url ?? server.url;
    const backend = typeormBackend({
      dataSource:
        way === 'over a stream of the application'
          ? { type: 'postgres', ...NO_ADDRESS, extra: { stream: () => streamTo(server.port) } }
          : { type: 'postgres', url },
      table: 'public.distributed_lock',
    });
    const waitingCount = async () =>
      (await database.query<unknown[]>(`SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)).length;
    try {
      await backend.check(30_000);
      await database.query(`ALTER SYSTEM SET synchronous_standby_names = 'away'`);
      await database.query('SELECT pg_reload_conf()');
      await until(async () => (await acquireOn(backend)) === 'unknown');
      for (let round = 0; round < 3; round += 1) expect(await acquireOn(backend)).toBe('unknown');
      await until(async () => (await waitingCount()) === 0);
    } finally {
      await backend.close();
      await database.destroy();
      await pooler?.stop();
      await server.stop();
    }
  },
  60_000,
);

it.each([
  ['mariadb', 'no connection', 'directly'],
  ['mysql', 'no connection', 'directly'],
  // The server lists the port of the proxy, so the connection could be that of anybody.
  ['mariadb', 'its connection', 'through a proxy'],
] as const)(
  'on %s, a commit that waits for a replica leaves %s in the server after its timeout, %s',
  async (type, left, way) => {
    const replication = ['--rpl-semi-sync-master-timeout=600000', '--rpl-semi-sync-master-wait-no-slave=ON'];
    const server = await startMariadb({ args: ['--log-bin=log', '--server-id=1', ...replication] });
    const proxy = way === 'directly' ? undefined : await FaultProxy.to(server.port);
    const url = new URL(server.url.replace(/^mariadb:/, `${type}:`));
    const database = await new DataSource({ type, url: url.href }).initialize();
    if (proxy) url.port = String(proxy.port);
    const backend = typeormBackend({ dataSource: { type, url: url.href }, table: 'distributed_lock' });
    const waitingCount = async () => {
      const listed = `SELECT 1 FROM information_schema.PROCESSLIST WHERE STATE LIKE '%semi-sync%'`;
      return (await database.query<unknown[]>(listed)).length;
    };
    try {
      await backend.check(30_000);
      await database.query('SET GLOBAL rpl_semi_sync_master_enabled = ON');
      expect(await acquireOn(backend)).toBe('unknown');
      await backend.close();
      await until(async () => (await waitingCount()) === (left === 'no connection' ? 0 : 1));
    } finally {
      await database.query('SET GLOBAL rpl_semi_sync_master_enabled = OFF');
      await backend.close();
      await database.destroy();
      await proxy?.close();
      await server.stop();
    }
  },
  60_000,
);
