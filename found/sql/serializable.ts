import 'reflect-metadata';
import { DataSource } from 'typeorm';
import { transactionLock } from '../lib/backends/typeorm/index.js';
const url = process.env['TEST_POSTGRES_URL']!;
const ds = await new DataSource({ type: 'postgres', url, poolSize: 6 }).initialize();
await ds.query('DROP TABLE IF EXISTS invoice, config, audit');
await ds.query('CREATE TABLE invoice (id int primary key, paid bool not null)');
await ds.query('CREATE TABLE config (id int primary key, v int not null)');
await ds.query('CREATE TABLE audit (seen int not null, at timestamptz default clock_timestamp())');
await ds.query('INSERT INTO invoice VALUES (1, false)');
await ds.query('INSERT INTO config VALUES (1, 1)');
const sleep = (ms: number) => new Promise((r) => setTimeout(r, ms));
for (const level of ['READ COMMITTED', 'SERIALIZABLE'] as const) {
  await ds.query('UPDATE invoice SET paid = false'); await ds.query('UPDATE config SET v = 1'); await ds.query('DELETE FROM audit');
  const payments: string[] = [];
  const pay = (who: string) => ds.transaction(level, async (m) => {
    await transactionLock(m, 'invoice:1', { waitMs: 10_000 });
    const [{ paid }] = await m.query('SELECT paid FROM invoice WHERE id = 1');
    if (paid) return 'already paid';
    payments.push(who); // a call of a payment service
    await sleep(500);
    await m.query('UPDATE invoice SET paid = true WHERE id = 1');
    return 'paid';
  }).catch((e: Error) => `error: ${e.message}`);
  const first = pay('first'); await sleep(150); const second = pay('second');
  console.log(level, 'results', await Promise.all([first, second]), 'payments', payments);
  // The second one commits: no conflict at all.
  const t1 = ds.transaction(level, async (m) => {
    await transactionLock(m, 'config', { waitMs: 10_000 });
    await sleep(500);
    await m.query('UPDATE config SET v = 2 WHERE id = 1');
  });
  await sleep(150);
  const t2 = ds.transaction(level, async (m) => {
    await transactionLock(m, 'config', { waitMs: 10_000 });
    const [{ v }] = await m.query('SELECT v FROM config WHERE id = 1');
    await m.query('INSERT INTO audit (seen) VALUES ($1)', [v]);
    return v as number;
  }).catch((e: Error) => `error: ${e.message}`);
  await t1;
  console.log(level, 'the second holder read v =', await t2, '(2 was committed before it got the key); audit', await ds.query('SELECT seen FROM audit'));
}
await ds.destroy();
