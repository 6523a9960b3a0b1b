import { describe, expect, it } from 'vitest';
import { Column, type DataSource, Entity, PrimaryColumn, VersionColumn } from 'typeorm';
import {
  FencingToken,
  claimRow,
  fencedFindOne,
  optimisticUpdate,
  withRowLock,
} from '../../lib/backends/typeorm/index.js';
import { LockConfigError } from '../../lib/core/errors.js';
import { databases, tablesOn } from './databases.js';

@Entity()
class Large {
  @PrimaryColumn('bigint')
  id!: string;

  @Column('int', { default: 0 })
  count!: number;

  @VersionColumn()
  version!: number;

  @FencingToken()
  fencingToken?: bigint;
}

/** Above 2^53. As a JavaScript number, the second is the first. */
const [FIRST, SECOND] = ['9007199254740992', '9007199254740993'] as const;

const onSqlite = databases.filter(([name]) => name === 'better-sqlite3' || name === 'libsql');

describe.each(onSqlite)('a row whose id the driver of %s rounds', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Large], (opened) => (database = opened));

  it('is refused, because it could be saved as another one', async () => {
    await database.manager.insert(Large, [{ id: FIRST }, { id: SECOND }]);
    const where = { id: SECOND };
    const calls = [
      withRowLock(database, Large, where, () => expect.unreachable()),
      fencedFindOne(database, Large, where, { key: 'spec', fencingToken: 7n }),
      optimisticUpdate(database, Large, where, () => expect.unreachable()),
      claimRow(database, Large, { from: { ...where, count: 0 }, to: { count: 1 } }),
    ];
    for (const result of await Promise.allSettled(calls)) {
      const reason: unknown = result.status === 'rejected' && result.reason;
      expect(reason).toBeInstanceOf(LockConfigError);
      expect(String(reason)).toContain('which the driver has rounded');
    }
    const counts = await database.query(`SELECT count FROM ${database.getMetadata(Large).tableName}`);
    expect(counts).toEqual([{ count: 0 }, { count: 0 }]);
  });
});
