import 'reflect-metadata';
import { Column, DataSource, Entity, PrimaryColumn } from 'typeorm';
import { claimRow } from '../lib/backends/typeorm/index.js';
@Entity('rd1_task') class Task { @PrimaryColumn('int') id!: number; @Column({ type: 'varchar' }) state!: string }
const mk = (extra: object) => new DataSource({ type: 'postgres', url: process.env['TEST_POSTGRES_URL']!, entities: [Task], synchronize: true, extra } as never).initialize();
const [worker, admin] = [await mk({ query_timeout: 500 }), await mk({})];
await admin.manager.insert(Task, { id: 1, state: 'WAITING' });
const r = admin.createQueryRunner(); await r.startTransaction(); await r.query('SELECT * FROM rd1_task WHERE id = 1 FOR UPDATE'); // some other transaction
const claim = (d: DataSource) => claimRow(d, Task, { from: { state: 'WAITING' }, to: { state: 'RUNNING' } }).then((t) => `got ${JSON.stringify(t)}`, (e: Error) => `threw ${e.message}`);
console.log('worker:', await claim(worker));
await r.commitTransaction(); await r.release();
await new Promise((x) => setTimeout(x, 300));
console.log('row:', await admin.manager.find(Task), '| every worker from now on:', await claim(admin));
await admin.query('DROP TABLE rd1_task'); process.exit(0);
