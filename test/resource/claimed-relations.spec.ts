import { beforeEach, describe, expect, it } from 'vitest';
import { Column, type DataSource, DeleteDateColumn, Entity, ManyToOne, PrimaryColumn } from 'typeorm';
import { claimRow } from '../../lib/backends/typeorm/index.js';
import { databases, tablesOn } from './databases.js';

@Entity()
class Shop {
  @PrimaryColumn('int')
  id!: number;
}

@Entity()
class Buyer {
  @PrimaryColumn('int')
  id!: number;

  @DeleteDateColumn()
  deletedAt!: Date | null;
}

@Entity()
class Purchase {
  @PrimaryColumn('int')
  id!: number;

  @Column({ type: 'varchar', length: 10, default: 'WAITING' })
  state!: string;

  /** TypeORM 1.x reads it by an INNER JOIN. */
  @ManyToOne(() => Shop, { eager: true, nullable: false, createForeignKeyConstraints: false })
  shop!: Shop;

  @ManyToOne(() => Buyer, { eager: true, createForeignKeyConstraints: false })
  buyer!: Buyer | null;

  @DeleteDateColumn()
  deletedAt!: Date | null;
}

const from = { id: 1, state: 'WAITING' };

describe.each(databases)('the eager relations of a claimed row on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Shop, Buyer, Purchase], (opened) => (database = opened));
  beforeEach(async () => {
    const { manager } = database;
    for (const entity of [Shop, Buyer, Purchase]) await manager.clear(entity);
    await manager.insert(Shop, { id: 1 });
    await manager.insert(Buyer, { id: 1 });
    await manager.insert(Purchase, { id: 1, shop: { id: 1 }, buyer: { id: 1 } });
  });

  it('are those that find() reads', async () => {
    const claimed = await claimRow(database, Purchase, { from, to: { state: 'PAID' } });
    expect(claimed).toMatchObject({ state: 'PAID', shop: { id: 1 }, buyer: { id: 1 } });
    expect(claimed).toEqual(await database.manager.findOneBy(Purchase, { id: 1 }));
  });

  it('are without a row that is deleted softly', async () => {
    await database.manager.softDelete(Buyer, { id: 1 });
    const claimed = await claimRow(database, Purchase, { from, to: { state: 'PAID' } });
    expect(claimed).toMatchObject({ state: 'PAID', shop: { id: 1 }, buyer: null });
  });

  it('do not hide the row if one of them is missing', async () => {
    await database.manager.delete(Shop, { id: 1 });
    const claimed = await claimRow(database, Purchase, { from, to: { state: 'PAID' } });
    expect(claimed).toMatchObject({ state: 'PAID', shop: null, buyer: { id: 1 } });
  });

  it('are without a row that is deleted softly, even if another one is missing', async () => {
    await database.manager.delete(Shop, { id: 1 });
    await database.manager.softDelete(Buyer, { id: 1 });
    const claimed = await claimRow(database, Purchase, { from, to: { state: 'PAID' } });
    expect(claimed).toMatchObject({ state: 'PAID', shop: null, buyer: null });
  });

  it('are read if the claim deletes the row softly', async () => {
    const to = { state: 'PAID', deletedAt: new Date() };
    const claimed = await claimRow(database, Purchase, { from, to });
    expect(claimed).toMatchObject({ ...to, deletedAt: expect.any(Date), shop: { id: 1 }, buyer: { id: 1 } });
  });
});
