import { describe, expect, it } from 'vitest';
import { Column, type DataSource, Entity, PrimaryColumn, VersionColumn } from 'typeorm';
import { FencingToken, claimRow, fencedUpdate, optimisticUpdate } from '../../lib/backends/typeorm/index.js';
import { databases, tablesOn } from './databases.js';

@Entity()
class Tagged {
  @PrimaryColumn('int')
  id!: number;

  #tags: string[] | null | undefined;

  @Column('simple-json', { nullable: true })
  get tags(): string[] {
    return (this.#tags ??= []);
  }

  set tags(tags: string[] | null) {
    this.#tags = tags;
  }

  @VersionColumn()
  version!: number;
}

class Price {
  #cents: number | undefined;

  @Column('int', { default: 0 })
  get cents(): number | undefined {
    return this.#cents;
  }

  set cents(cents: number | undefined) {
    this.#cents = cents;
  }

  @Column({ type: 'varchar', length: 3, default: 'EUR' })
  currency?: string;

  @FencingToken()
  fencingToken?: bigint;
}

@Entity()
class Item {
  @PrimaryColumn('int')
  id!: number;

  @Column(() => Price)
  price!: Price;
}

const priceOf = (values: Partial<Price>) => Object.assign(new Price(), values);

describe.each(databases)('optimisticUpdate of a column that is an accessor on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Tagged], (opened) => (database = opened));

  it('writes what has changed within a value that the getter has created', async () => {
    const { manager } = database;
    await manager.insert(Tagged, { id: 1 });
    await optimisticUpdate(database, Tagged, { id: 1 }, (row) => void row.tags.push('new'));
    expect((await manager.findOneByOrFail(Tagged, { id: 1 })).tags).toEqual(['new']);
  });
});

describe.each(databases)('a column that is an accessor of an embedded object on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Item], (opened) => (database = opened));

  it.each<[string, (price: Price, was: number) => Promise<unknown>]>([
    ['fencedUpdate', (price) => fencedUpdate(database, Item, { id: 1 }, { price }, 5n)],
    ['claimRow', (price, cents) => claimRow(database, Item, { from: { price: { cents } }, to: { price } })],
  ])('is written by %s', async (__, write) => {
    const { manager } = database;
    await manager.save(Item, { id: 1, price: priceOf({ cents: 7, currency: 'USD' }) });
    await write(priceOf({ cents: 9 }), 7);
    expect((await manager.findOneByOrFail(Item, { id: 1 })).price).toMatchObject({
      cents: 9,
      currency: 'USD',
    });
    await manager.delete(Item, { id: 1 });
  });
});
