import { expect, it } from 'vitest';
import Database from 'libsql';
import { sqlite } from '../../../../../lib/backends/typeorm/dialects/sqlite/sqlite-dialect.js';
import { type Session, Timeout } from '../../../../../lib/backends/typeorm/connections/session.js';
import { LockTable } from '../../../../../lib/backends/typeorm/table/lock-table.js';
import { createTableSql, tableOf } from '../../../../../lib/backends/typeorm/table/table-definition.js';
import { Gate } from '../../../../support/gate.js';

/** A session whose replies, errors too, arrive when the gate opens. */
function sessionOf(database: Database.Database, gate: Gate): Session {
  const query = async (sql: string) => {
    const reply = (async () => database.prepare(sql).all())();
    await Promise.allSettled([reply]);
    await gate.passed;
    return reply;
  };
  return { timeout: new Timeout(30_000), query } as Session;
}

it.each([true, false])(
  'a connection that asked before another one found the table can use it (creates tables: %s)',
  async (createTable) => {
    const database = new Database(':memory:');
    const [open, closed] = [new Gate(), new Gate()];
    open.open();
    const table = tableOf('distributed_lock', {}, sqlite);
    const lockTable = new LockTable({ dialect: sqlite, table, createTable });
    const early = lockTable.ensureReady(sessionOf(database, closed));
    database.exec(createTableSql(table, sqlite));
    await lockTable.ensureReady(sessionOf(database, open));
    closed.open();
    await expect(early).resolves.toBeUndefined();
    database.close();
  },
);
