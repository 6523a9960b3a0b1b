import { describe, expect, it } from 'vitest';
import {
  Column,
  type DataSource,
  DeleteDateColumn,
  Entity,
  IsNull,
  Not,
  PrimaryColumn,
  VersionColumn,
} from 'typeorm';
import {
  FencingToken,
  claimRow,
  fencedFindOne,
  fencedUpdate,
  optimisticUpdate,
  withRowLock,
} from '../../lib/backends/typeorm/index.js';
import { databases, tablesOn } from './databases.js';

@Entity()
class Customer {
  @PrimaryColumn('int')
  id!: number;

  @Column({ type: 'varchar', length: 10, nullable: true })
  purgedBy!: string | null;

  @VersionColumn()
  version!: number;

  @FencingToken()
  fencingToken?: bigint;

  @DeleteDateColumn()
  deletedAt!: Date | null;
}

const change = (customer: Customer) => void (customer.purgedBy = 'spec');

const helpers: [string, (database: DataSource, where: object) => Promise<unknown>][] = [
  ['fencedFindOne', (database, where) => fencedFindOne(database, Customer, where, 5n)],
  ['optimisticUpdate', (database, where) => optimisticUpdate(database, Customer, where, change)],
  ['withRowLock', (database, where) => withRowLock(database, Customer, where, (row) => row)],
  [
    'claimRow',
    (database, where) =>
      claimRow(database, Customer, { from: { ...where, purgedBy: IsNull() }, to: { purgedBy: 'spec' } }),
  ],
];

describe.each(databases)('a row that is deleted softly on %s', (_, storeOf) => {
  let database: DataSource;
  let nextId = 0;
  tablesOn(storeOf, [Customer], (opened) => (database = opened));
  const newCustomer = async (): Promise<number> => {
    const id = (nextId += 1);
    await database.manager.insert(Customer, { id });
    await database.manager.softDelete(Customer, { id });
    return id;
  };

  it.each(helpers)('is found by %s only if the condition is about that', async (_, find) => {
    const id = await newCustomer();
    expect(await find(database, { id })).toBeNull();
    expect(await find(database, { id, deletedAt: IsNull() })).toBeNull();
    expect(await find(database, { id, deletedAt: Not(IsNull()) })).toMatchObject({ id });
  });

  it('can be read, restored and read again under one fencing token', async () => {
    const id = await newCustomer();
    const deleted = { id, deletedAt: Not(IsNull()) };
    expect(await fencedFindOne(database, Customer, deleted, 7n)).toMatchObject({ id });
    expect(await fencedUpdate(database, Customer, deleted, { deletedAt: null }, 7n)).toBe(true);
    expect(await fencedFindOne(database, Customer, { id }, 7n)).toMatchObject({ id, deletedAt: null });
  });
});
