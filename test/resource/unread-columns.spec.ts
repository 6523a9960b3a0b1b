import { describe, expect, it } from 'vitest';
import { Column, type DataSource, Entity, PrimaryColumn, VersionColumn } from 'typeorm';
import { optimisticUpdate } from '../../lib/backends/typeorm/index.js';
import { databases, tablesOn } from './databases.js';

interface Money {
  readonly cents: number;
}

@Entity()
class Contract {
  @PrimaryColumn('int')
  id!: number;

  @Column({
    type: 'int',
    select: false,
    transformer: { to: ({ cents }: Money) => cents, from: (cents: number) => ({ cents }) },
  })
  price!: Money;

  @Column('int', { default: 0 })
  months!: number;

  @VersionColumn()
  version!: number;
}

describe.each(databases)('a column that is not read and has a transformer, on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Contract], (opened) => (database = opened));
  const priceOf = async (id: number) =>
    (
      await database.manager.findOneOrFail(Contract, {
        where: { id },
        select: { id: true, price: true },
      })
    ).price;

  it('hinders no change of another one, and is written if it is set', async () => {
    await database.manager.insert(Contract, { id: 1, price: { cents: 5 } });
    const changed = await optimisticUpdate(database, Contract, { id: 1 }, (row) => void (row.months = 3));
    expect(changed).toMatchObject({ months: 3, version: 2 });
    expect(await priceOf(1)).toEqual({ cents: 5 });
    await optimisticUpdate(database, Contract, { id: 1 }, (row) => void (row.price = { cents: 7 }));
    expect(await priceOf(1)).toEqual({ cents: 7 });
  });
});
