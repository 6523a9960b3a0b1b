import 'reflect-metadata';
import { DataSource } from 'typeorm';
import { randomUUID } from 'node:crypto';
import { typeormBackend } from '../lib/backends/typeorm/index.js';
import { startPostgres } from '../test/services/postgres.js';
const server = await startPostgres();
const admin = await new DataSource({ type: 'postgres', url: server.url }).initialize();
const b = typeormBackend({ dataSource: { type: 'postgres', url: server.url } });
const key = randomUUID(), holder = randomUUID();
await b.check(30_000);
const tick = { tickMs: Date.now(), maxEarlyMs: 500, staleAfterMs: 60_000, maxAttempts: 3 };
console.log('claim', (await b.execute({ acquire: [{ key, holder, leaseMs: 60_000, instance: 'x', tick }] }, 5_000)).acquire[0]);
await admin.query(`ALTER SYSTEM SET synchronous_standby_names = 'away'`); await admin.query('SELECT pg_reload_conf()');
await new Promise((r) => setTimeout(r, 500));
const t0 = Date.now();
for (let i = 0; i < 3; i++) { const r = (await b.execute({ release: [{ key, holder, hasEnded: true }] }, 2_000)).release[0]!; console.log(Date.now() - t0, 'ms: end of the run', r.kind, r.kind === 'unknown' ? String(r.cause) : ''); await new Promise((r) => setTimeout(r, 50)); }
console.log('no standby has it:', (await admin.query('SELECT count(*)::int AS standbys FROM pg_stat_replication'))[0]);
await b.close(); await admin.destroy(); await server.stop(); process.exit(0);
