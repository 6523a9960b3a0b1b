import { beforeEach, describe, expect, it } from 'vitest';
import {
  Column,
  type DataSource,
  Entity,
  JoinColumn,
  JoinTable,
  ManyToMany,
  ManyToOne,
  OneToMany,
  OneToOne,
  PrimaryColumn,
  RelationId,
  VersionColumn,
} from 'typeorm';
import { FencingToken, claimRow, fencedUpdate, optimisticUpdate } from '../../lib/backends/typeorm/index.js';
import { LockConfigError, LockLostError } from '../../lib/index.js';
import { databases, tablesOn } from './databases.js';

function encode(): string {
  return 'encoded';
}

@Entity()
class Parcel {
  @PrimaryColumn('int')
  id!: number;

  /** TypeORM leaves it out of updates. */
  @Column({ type: 'varchar', length: 10, default: 'WAITING', update: false })
  state!: string;

  @Column('int', { default: 0 })
  weight!: number;

  @Column({
    type: 'varchar',
    length: 10,
    default: 'encode',
    transformer: {
      from: () => encode,
      to: (handler?: () => string) => handler?.name,
    },
  })
  handler!: () => string;

  @VersionColumn()
  version!: number;

  @FencingToken({ select: true })
  fencingToken?: bigint;
}

@Entity()
class Crate {
  @PrimaryColumn('int')
  id!: number;

  @Column('int', { default: 0 })
  weight!: number;

  @ManyToOne(() => Crate, { createForeignKeyConstraints: false })
  outer!: Crate | null;

  @RelationId((crate: Crate) => crate.outer)
  outerId!: number | null;

  @OneToMany(() => Crate, (crate: Crate) => crate.outer)
  inner!: Crate[];

  @ManyToMany(() => Crate, { createForeignKeyConstraints: false })
  @JoinTable({ name: 'crate_neighbours' })
  neighbours!: Crate[];

  @OneToOne(() => Crate, { createForeignKeyConstraints: false })
  @JoinColumn()
  lid!: Crate | null;

  @OneToOne(() => Crate, (crate: Crate) => crate.lid)
  lidOf!: Crate | null;

  @VersionColumn()
  version!: number;
}

describe.each(databases)('relations that an optimistic update does not write, on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Crate], (opened) => (database = opened));
  beforeEach(async () => {
    await database.createQueryBuilder().delete().from(Crate).execute();
    await database.manager.insert(Crate, { id: 1 });
  });

  const other = { id: 2 } as Crate;
  it.each([
    ['outerId', (crate: Crate) => (crate.outerId = 2)],
    ['inner', (crate: Crate) => (crate.inner = [other])],
    ['neighbours', (crate: Crate) => (crate.neighbours = [other])],
    ['lidOf', (crate: Crate) => (crate.lidOf = other)],
  ])('an assigned %s is refused and nothing is written', async (path, assign) => {
    const updated = optimisticUpdate(database, Crate, { id: 1 }, (crate) => {
      crate.weight = 5;
      assign(crate);
    });
    await expect(updated).rejects.toThrow(LockConfigError);
    await expect(updated).rejects.toThrow(`Expected changes of columns of Crate, got one of ${path}`);
    expect(await database.manager.find(Crate)).toMatchObject([{ weight: 0, version: 1 }]);
  });

  it('relations that have a column are written', async () => {
    await optimisticUpdate(database, Crate, { id: 1 }, (crate) => {
      crate.outer = other;
      crate.lid = other;
    });
    expect(await database.manager.find(Crate, { loadRelationIds: true })).toMatchObject([
      { outer: 2, lid: 2 },
    ]);
  });
});

describe.each(databases)('columns that a helper does not write, on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Parcel], (opened) => (database = opened));
  beforeEach(async () => {
    await database.manager.clear(Parcel);
    await database.manager.insert(Parcel, { id: 1 });
  });

  it('a claim that would change only such a column is refused: two workers would get the row', async () => {
    const claim = { from: { state: 'WAITING' }, to: { state: 'RUNNING', weight: 2 } };
    await expect(claimRow(database, Parcel, claim)).rejects.toThrow(LockConfigError);
    const byWeight = { from: { state: 'WAITING', weight: 0 }, to: { weight: 2 } };
    expect(await claimRow(database, Parcel, byWeight)).toMatchObject({ id: 1, weight: 2 });
    expect(await claimRow(database, Parcel, byWeight)).toBeNull();
  });

  it('nothing but a fenced read or write changes the fencing token', async () => {
    expect(await fencedUpdate(database, Parcel, { id: 1 }, { weight: 1 }, 9n)).toBe(true);
    const lowered = optimisticUpdate(database, Parcel, { id: 1 }, (row) => {
      row.fencingToken = 1n;
    });
    await expect(lowered).rejects.toThrow(/Expected values without 'fencingToken'/);
    const claim = { from: { weight: 1 }, to: { weight: 2, fencingToken: 1n } };
    await expect(claimRow(database, Parcel, claim)).rejects.toThrow(/Expected values without 'fencingToken'/);
    await expect(fencedUpdate(database, Parcel, { id: 1 }, { weight: 5 }, 5n)).rejects.toThrow(LockLostError);
    await optimisticUpdate(database, Parcel, { id: 1 }, (row) => void (row.weight += 1));
    expect(await database.manager.find(Parcel)).toMatchObject([{ weight: 2, fencingToken: 9n }]);
  });

  it('a fencing token that the application reads as a number hinders no other change', async () => {
    await fencedUpdate(database, Parcel, { id: 1 }, { weight: 1 }, 9n);
    await optimisticUpdate(database, Parcel, { id: 1 }, (row) => {
      Object.assign(row, { fencingToken: Number(row.fencingToken), weight: 3 });
    });
    expect(await database.manager.find(Parcel)).toMatchObject([{ weight: 3, fencingToken: 9n }]);
  });

  it('a column that a transformer reads as a function hinders no other change', async () => {
    const changed = await optimisticUpdate(database, Parcel, { id: 1 }, (row) => void (row.weight = 4));
    expect(changed).toMatchObject({ weight: 4, handler: encode });
  });

  it('an SQL expression is refused by an optimistic update', async () => {
    const update = optimisticUpdate(database, Parcel, { id: 1 }, (row) => {
      row.weight = (() => 'weight + 1') as never;
    });
    await expect(update).rejects.toThrow(/Expected a value for weight of Parcel, got a function/);
  });
});
