import { describe, expect, it } from 'vitest';
import {
  Column,
  type DataSource,
  DeleteDateColumn,
  Entity,
  ManyToOne,
  PrimaryColumn,
  VersionColumn,
} from 'typeorm';
import {
  FencingToken,
  claimRow,
  fencedFindOne,
  optimisticUpdate,
  withRowLock,
} from '../../lib/backends/typeorm/index.js';
import { LockConfigError } from '../../lib/core/errors.js';
import { sqlServers } from '../support/stores.js';
import { databases, tablesOn } from './databases.js';

@Entity()
class Owner {
  @PrimaryColumn('int')
  id!: number;

  @Column({ type: 'varchar', length: 10, default: '' })
  name!: string;

  @DeleteDateColumn()
  deletedAt!: Date | null;
}

@Entity()
class Ticket {
  @PrimaryColumn('int')
  id!: number;

  @ManyToOne(() => Owner, { createForeignKeyConstraints: false })
  owner!: Owner;

  @Column({ type: 'varchar', length: 10, default: 'FREE' })
  state!: string;

  @VersionColumn()
  version!: number;

  @FencingToken()
  fencingToken?: bigint;
}

const of = (ownerId: number) => ({ owner: { id: ownerId } });

async function newTickets({ manager }: DataSource, ownerId: number, ids: readonly number[]) {
  await manager.insert(Owner, { id: ownerId });
  await manager.insert(
    Ticket,
    ids.map((id) => ({ id, ...of(ownerId) })),
  );
}

describe.each(databases)('a row that is named by the id of a related row, on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Owner, Ticket], (opened) => (database = opened));

  it('is found though the related row is deleted softly', async () => {
    await newTickets(database, 1, [1]);
    await database.manager.softDelete(Owner, { id: 1 });
    const where = of(1);
    const change = (ticket: Ticket) => void (ticket.state = 'SOLD');
    expect(await optimisticUpdate(database, Ticket, where, change)).toMatchObject({ id: 1 });
    expect(await fencedFindOne(database, Ticket, where, 5n)).toMatchObject({ id: 1, state: 'SOLD' });
    expect(await withRowLock(database, Ticket, where, ({ id }) => id)).toBe(1);
    const claim = { from: { ...where, state: 'SOLD' }, to: { state: 'USED' } };
    expect(await claimRow(database, Ticket, claim)).toMatchObject({ id: 1, state: 'USED' });
  });

  it('is not changed by another field of the related row', async () => {
    await newTickets(database, 2, [2]);
    const byName = { owner: { name: '' } };
    const change = (ticket: Ticket) => void (ticket.state = 'SOLD');
    await expect(optimisticUpdate(database, Ticket, byName, change)).rejects.toThrow(LockConfigError);
    const claim = {
      from: { state: 'FREE' },
      to: { state: 'SOLD' },
      order: { owner: { name: 'ASC' } },
    } as const;
    await expect(claimRow(database, Ticket, claim)).rejects.toThrow('got owner.name');
  });
});

describe.each(sqlServers)('a row lock by the id of a related row, on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Owner, Ticket], (opened) => (database = opened));

  it('locks neither the related row nor another row of it', async () => {
    await newTickets(database, 1, [1, 2]);
    const lockOne = (work: (ticket: Ticket) => unknown) =>
      withRowLock(database, Ticket, of(1), work, { onContention: 'skip' });
    const seen: unknown[] = [];
    await lockOne(async ({ id }) => {
      seen.push(id);
      await lockOne((other) => seen.push(other.id));
      await withRowLock(database, Owner, { id: 1 }, (owner) => seen.push(owner.name), { waitMs: 0 });
    });
    expect(seen.slice(0, 2).sort()).toEqual([1, 2]);
    expect(seen[2]).toBe('');
  });
});

@Entity()
class Reading {
  @PrimaryColumn('int')
  sensor!: number;

  @PrimaryColumn({ type: 'timestamp', precision: 6 })
  at!: Date;

  @Column('int')
  measured!: number;

  @VersionColumn()
  version!: number;
}

@Entity()
class Daily {
  @PrimaryColumn({ type: 'timestamp', precision: 3 })
  at!: Date;

  @Column('int')
  measured!: number;

  @VersionColumn()
  version!: number;
}

describe.each(sqlServers)('an id with a date, on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Reading, Daily, Owner, Ticket], (opened) => (database = opened));

  it('is refused if its microseconds are lost', async () => {
    const table = database.getMetadata(Reading).tableName;
    for (const [at, measured] of [
      ['2026-01-01 00:00:00.123000', 100],
      ['2026-01-01 00:00:00.123456', 7],
    ])
      await database.query(
        `INSERT INTO ${table} (sensor, at, measured, version) VALUES (1, '${at}', ${measured}, 1)`,
      );
    const where = { sensor: 1, measured: 7 };
    const change = (reading: Reading) => void (reading.measured += 1);
    await expect(optimisticUpdate(database, Reading, where, change)).rejects.toThrow(LockConfigError);
    const claim = { from: where, to: { measured: 8 } };
    await expect(claimRow(database, Reading, claim)).rejects.toThrow('precision: 3');
    const rows = await database.query<Reading[]>(`SELECT measured FROM ${table} ORDER BY at`);
    expect(rows.map(({ measured }) => measured)).toEqual([100, 7]);
  });

  it('is accepted if it has none', async () => {
    await database.manager.insert(Daily, { at: new Date('2026-01-01T00:00:00.123Z'), measured: 1 });
    const changed = await optimisticUpdate(
      database,
      Daily,
      { measured: 1 },
      (day) => void (day.measured = 2),
    );
    expect(changed).toMatchObject({ measured: 2, version: 2 });
  });

  it('a fenced read by the version, which it changes, is refused', async () => {
    await newTickets(database, 1, [1]);
    const read = fencedFindOne(database, Ticket, { id: 1, version: 1 }, 5n);
    await expect(read).rejects.toThrow(LockConfigError);
    expect(await fencedFindOne(database, Ticket, { id: 1 }, 5n)).toMatchObject({ id: 1, version: 2 });
  });
});
