import 'reflect-metadata';
import { DataSource } from 'typeorm';
import { randomUUID } from 'node:crypto';
import { typeormBackend } from '../lib/backends/typeorm/index.js';
import { startMariadb } from '../test/services/mariadb.js';
import { slowProxy } from '../test/faults/injection/slow-proxy.js';
const sleep = (ms: number) => new Promise((r) => setTimeout(r, ms));
const [a, b] = [await startMariadb(), await startMariadb()];
const admins = await Promise.all([a, b].map((s) => new DataSource({ type: 'mariadb', url: s.url }).initialize()));
for (const d of admins) { await d.query(`CREATE USER app@'%' IDENTIFIED BY 'p'`); await d.query('GRANT ALL ON `lock`.* TO app@\'%\''); }
const proxy = await slowProxy(a.port); // the name of the primary
const options = (port: number) => ({ type: 'mariadb', host: '127.0.0.1', port, username: 'app', password: 'p', database: 'lock' }) as const;
const process1 = typeormBackend({ dataSource: options(proxy.port) });
const key = 'lock/job:nightly';
await process1.registerTicks(key, 10_000);
await process1.setPaused(key, true, 10_000);
const claim = async (x: typeof process1) => (await x.execute({ acquire: [{ key, holder: randomUUID(), leaseMs: 5_000, instance: 'x', tick: { tickMs: Date.now(), maxEarlyMs: 500, staleAfterMs: 60_000 } }] }, 2_000)).acquire[0]!;
console.log('paused:', (await claim(process1) as { reason?: string }).reason);
// Switchover: the former primary is read only; new connections lead to the new one, which has the job.
await admins[0]!.query('SET GLOBAL read_only = 1');
proxy.targetPort = b.port;
const process2 = typeormBackend({ dataSource: options(proxy.port) });
await process2.registerTicks(key, 10_000); await process2.setPaused(key, true, 10_000);
await process2.setPaused(key, false, 10_000); // an operator resumes the job
const seen: Record<string, number> = {}; const t0 = Date.now();
while (Date.now() - t0 < 80_000) { const r = await claim(process1); const k = r.kind === 'refused' ? `refused: ${r.reason}` : r.kind; seen[k] = (seen[k] ?? 0) + 1; if (r.kind === 'granted') { console.log('granted after', Date.now() - t0, 'ms'); break; } await sleep(2_000); }
console.log('the process that was connected before, for', Date.now() - t0, 'ms:', seen, '| a process that connects now:', (await claim(process2)).kind);
await process1.close(); await process2.close(); for (const d of admins) await d.destroy(); await proxy.close(); await a.stop(); await b.stop(); process.exit(0);
