import 'reflect-metadata';
import { DataSource } from 'typeorm';
import { randomUUID } from 'node:crypto';
import { typeormBackend } from '../lib/backends/typeorm/index.js';
import { startPostgres } from '../test/services/postgres.js';
import { startMariadb } from '../test/services/mariadb.js';
const sleep = (ms: number) => new Promise((r) => setTimeout(r, ms));
process.on('unhandledRejection', (e) => console.log('UNHANDLED', e));
process.on('uncaughtException', (e) => console.log('UNCAUGHT', e));
for (const type of ['postgres', 'mariadb'] as const) {
  const server = type === 'postgres' ? await startPostgres() : await startMariadb({ args: ['--log-bin=log', '--server-id=1', '--rpl-semi-sync-master-timeout=600000', '--rpl-semi-sync-master-wait-no-slave=ON'] });
  const admin = await new DataSource({ type, url: server.url }).initialize();
  const b0 = typeormBackend({ dataSource: { type, url: server.url } }); await b0.check(30_000); await b0.close();
  if (type === 'postgres') { await admin.query(`ALTER SYSTEM SET synchronous_standby_names = 'away'`); await admin.query('SELECT pg_reload_conf()'); await sleep(1_000); }
  else await admin.query('SET GLOBAL rpl_semi_sync_master_enabled = ON');
  const count = async () => type === 'postgres'
    ? (await admin.query(`SELECT count(*)::int AS n, count(*) FILTER (WHERE wait_event = 'SyncRep')::int AS w FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`))[0]
    : (await admin.query(`SELECT count(*) AS n, sum(STATE LIKE '%semi-sync%') AS w FROM information_schema.PROCESSLIST WHERE USER = 'root' AND ID <> CONNECTION_ID()`))[0];
  const before = process.getActiveResourcesInfo().length;
  for (let round = 0; round < 12; round += 1) {
    const b = typeormBackend({ dataSource: { type, url: server.url } });
    const acquire = (ms: number) => b.execute({ acquire: [{ key: randomUUID(), holder: randomUUID(), leaseMs: 60_000, instance: 'x' }] }, ms);
    const running = Promise.all(Array.from({ length: 4 }, (_, i) => acquire(200 + 40 * i)));
    await sleep(round * 40);
    const t = Date.now(); await b.close(); const took = Date.now() - t;
    await running;
    if (took > 1_600) console.log(type, 'round', round, 'close took', took);
  }
  await sleep(2_500);
  console.log(type, 'connections left in the server', await count(), '| handles before/after', before, process.getActiveResourcesInfo().length);
  if (type === 'mariadb') await admin.query('SET GLOBAL rpl_semi_sync_master_enabled = OFF');
  await admin.destroy(); await server.stop();
}
process.exit(0);
