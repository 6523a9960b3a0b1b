import { describe, expect, it } from 'vitest';
import {
  Column,
  type DataSource,
  DeleteDateColumn,
  Entity,
  In,
  IsNull,
  JoinColumn,
  ManyToOne,
  PrimaryColumn,
  VersionColumn,
} from 'typeorm';
import { FencingToken, claimRow, fencedUpdate, optimisticUpdate } from '../../lib/backends/typeorm/index.js';
import { LockConfigError, LockLostError } from '../../lib/core/errors.js';
import { databases, tablesOn } from './databases.js';

/** `label` has an initialiser, `secret` is not read by default. */
class Part {
  @Column({ type: 'varchar', length: 40 })
  label: string | undefined = 'initial';

  @Column({ type: 'varchar', length: 40, select: false, nullable: true })
  secret?: string | null | undefined;

  @VersionColumn()
  version?: number;

  @FencingToken()
  fencingToken?: bigint;
}

@Entity()
class Whole {
  @PrimaryColumn('int')
  id!: number;

  @Column('int')
  count!: number;

  @Column(() => Part)
  part!: Part;
}

const upper = { to: (text?: string) => text?.toUpperCase(), from: (text: string) => text.toLowerCase() };

class Name {
  @PrimaryColumn('int')
  id!: number;

  @Column({ type: 'varchar', length: 40, transformer: upper })
  state!: string;

  @VersionColumn()
  version?: number;
}

@Entity()
class Named {
  @Column(() => Name)
  name!: Name;

  @Column({ type: 'varchar', length: 40, nullable: true })
  worker?: string | null;

  @DeleteDateColumn()
  deletedAt?: Date | null;
}

@Entity()
class Owned {
  @PrimaryColumn('int')
  id!: number;

  @Column({ type: 'varchar', length: 40, nullable: true })
  note?: string | null;

  @Column('int', { nullable: true })
  ownerId?: number | null;

  @ManyToOne(() => Whole, { nullable: true, createForeignKeyConstraints: false })
  @JoinColumn({ name: 'ownerId' })
  owner?: Whole | null;

  @ManyToOne(() => Whole, { nullable: true, createForeignKeyConstraints: false })
  friend?: Whole | null;

  /** Its id is part of an embedded object. */
  @ManyToOne(() => Named, { nullable: true, createForeignKeyConstraints: false })
  named?: Named | null;

  @VersionColumn()
  version?: number;
}

class Place {
  @PrimaryColumn({ type: 'varchar', length: 40 })
  tenant!: string;

  @PrimaryColumn('int')
  no!: number;
}

/** Its id has two columns in one embedded object. */
@Entity()
class Placed {
  @Column(() => Place)
  place!: Place;

  @Column({ type: 'varchar', length: 40 })
  state!: string;
}

let nextId = 1;
const newId = () => (nextId += 1);

async function newWhole({ manager }: DataSource): Promise<number> {
  const id = newId();
  await manager.insert(Whole, { id, count: 0, part: { label: 'new', secret: 'kept' } });
  return id;
}

async function newNamed({ manager }: DataSource): Promise<number> {
  const id = newId();
  await manager.insert(Named, { name: { id, state: 'waiting' } });
  return id;
}

const readWhole = ({ manager }: DataSource, id: number) =>
  manager.findOneOrFail(Whole, {
    where: { id },
    select: { id: true, count: true, part: { label: true, secret: true, version: true, fencingToken: true } },
  });

describe.each(databases)('on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Whole, Named, Owned, Placed], (opened) => (database = opened));

  describe('an optimistic update', () => {
    it('loses nothing if the version is part of an embedded object', async () => {
      const id = await newWhole(database);
      const updates = ['one', 'other'].map((label) =>
        optimisticUpdate(database, Whole, { id }, (whole) => {
          whole.count += 1;
          whole.part.label = `${whole.part.label} ${label}`;
        }),
      );
      await Promise.all(updates);
      const { count, part } = await readWhole(database, id);
      expect([count, part.version]).toEqual([2, 3]);
      expect(['new one other', 'new other one']).toContain(part.label);
    });

    it('leaves unread parts of an embedded object unchanged', async () => {
      const id = await newWhole(database);
      await fencedUpdate(database, Whole, { id }, { count: 1 }, { fencingToken: 9n, key: 'spec' });
      await optimisticUpdate(database, Whole, { id }, ({ part }) => {
        part.label = 'changed';
        part.secret = undefined;
      });
      expect(await readWhole(database, id)).toMatchObject({
        part: { label: 'changed', secret: 'kept', fencingToken: 9n },
      });
    });

    it('writes null, and rejects undefined', async () => {
      const id = await newWhole(database);
      await optimisticUpdate(database, Whole, { id }, ({ part }) => {
        part.label = 'empty';
        part.secret = null;
      });
      expect((await readWhole(database, id)).part.secret).toBeNull();
      const update = optimisticUpdate(database, Whole, { id }, ({ part }) => (part.label = undefined));
      await expect(update).rejects.toThrow(LockConfigError);
      await expect(update).rejects.toThrow('Expected a value for part.label of Whole, got undefined');
    });

    it('changes only its own row if id and version are parts of the same object', async () => {
      const [id, another] = [await newNamed(database), await newNamed(database)];
      await optimisticUpdate(database, Named, { name: { id } }, (named) => (named.worker = 'ours'));
      const read = (one: number) => database.manager.findOneByOrFail(Named, { name: { id: one } });
      expect(await read(id)).toMatchObject({ worker: 'ours', name: { version: 2 } });
      expect(await read(another)).toMatchObject({ worker: null, name: { version: 1 } });
    });

    it('applies operators again at each attempt, through the transformer', async () => {
      const id = await newNamed(database);
      let calls = 0;
      const where = { name: { id, state: In(['waiting']) } };
      const named = await optimisticUpdate(database, Named, where, async (row) => {
        calls += 1;
        if (calls === 1)
          await optimisticUpdate(database, Named, { name: { id } }, (it) => (it.worker = 'first'));
        row.worker = 'second';
      });
      expect(named).toMatchObject({ worker: 'second', name: { version: 3 } });
    });

    it('writes a relation, beside a column of its own or without', async () => {
      const [id, owner, friend] = [newId(), await newWhole(database), await newWhole(database)];
      const namedId = await newNamed(database);
      await database.manager.insert(Owned, { id });
      await optimisticUpdate(database, Owned, { id }, (owned) => {
        owned.owner = { id: owner } as Whole;
        owned.friend = { id: friend } as Whole;
        owned.named = { name: { id: namedId } } as Named;
      });
      const relations = { friend: true, owner: true, named: true };
      const read = () => database.manager.findOneOrFail(Owned, { where: { id }, relations });
      expect(await read()).toMatchObject({
        ownerId: owner,
        owner: { id: owner },
        friend: { id: friend },
        named: { name: { id: namedId } },
      });
      await optimisticUpdate(database, Owned, { id }, (owned) => {
        owned.ownerId = friend;
        owned.friend = { id: owner } as Whole;
      });
      expect(await read()).toMatchObject({ ownerId: friend, owner: { id: friend }, friend: { id: owner } });
    });
  });

  it('a fenced update refuses null in place of the embedded object of the token', async () => {
    const id = await newWhole(database);
    const update = fencedUpdate(database, Whole, { id }, { part: null as unknown as Part }, 9n);
    await expect(update).rejects.toThrow('Expected values.part to be an object, got null');
    expect(await fencedUpdate(database, Whole, { id }, { part: { label: 'next' } }, 8n)).toBe(true);
    expect(await readWhole(database, id)).toMatchObject({ part: { label: 'next', secret: 'kept' } });
  });

  it('an optimistic update writes null for a relation that is set to null, even if it has a column of its own', async () => {
    const id = newId();
    await database.manager.insert(Owned, { id, ownerId: 1, friend: { id: 2 } });
    await optimisticUpdate(database, Owned, { id }, (owned) => {
      owned.note = 'alone';
      owned.owner = null;
      owned.friend = null;
    });
    const friendless = { id, friend: IsNull() };
    expect(await database.manager.findOneByOrFail(Owned, friendless)).toMatchObject({
      ownerId: null,
      note: 'alone',
    });
  });

  describe('a claim', () => {
    it('of a state that is part of the same object as the id goes to one of all', async () => {
      const id = await newNamed(database);
      const claims = ['one', 'other'].map((worker) =>
        claimRow(database, Named, {
          from: { name: { id, state: 'waiting' } },
          to: { name: { state: 'running' }, worker },
        }),
      );
      expect((await Promise.all(claims)).filter((claimed) => claimed !== null)).toHaveLength(1);
    });

    it('finds a row whose id has two columns in one object', async () => {
      const place = { tenant: 'shop', no: newId() };
      await database.manager.insert(Placed, { place, state: 'waiting' });
      const claim = { from: { place: { tenant: 'shop' }, state: 'waiting' }, to: { state: 'running' } };
      expect(await claimRow(database, Placed, claim)).toEqual({ place, state: 'running' });
      expect(await claimRow(database, Placed, claim)).toBeNull();
    });

    it('leaves a part that is undefined as it is', async () => {
      const id = await newWhole(database);
      const part = { label: 'claimed', secret: undefined };
      await claimRow(database, Whole, { from: { id, count: 0 }, to: { count: 1, part } });
      expect(await readWhole(database, id)).toMatchObject({ part: { label: 'claimed', secret: 'kept' } });
      expect(part).toEqual({ label: 'claimed', secret: undefined });
    });

    it('returns the row even if the claim deletes it', async () => {
      const id = await newNamed(database);
      const claimed = await claimRow(database, Named, {
        from: { name: { id, state: 'waiting' } },
        to: { name: { state: 'done' }, deletedAt: new Date() },
      });
      expect(claimed).toMatchObject({ name: { id, state: 'done' }, deletedAt: expect.any(Date) });
    });

    it.each([
      [{ name: { state: 'waiting' } }, { name: { state: 'waiting' } }],
      [{ deletedAt: new Date(7) }, { deletedAt: new Date(7) }],
    ])('that would leave %j as it is, is refused', async (from, to) => {
      await expect(claimRow(database, Named, { from, to })).rejects.toThrow('the row could be claimed again');
    });

    it('may not give the row another id', async () => {
      const claim = { from: { name: { id: 1, state: 'waiting' } }, to: { name: { id: 2, state: 'done' } } };
      await expect(claimRow(database, Named, claim)).rejects.toThrow(
        "expected 'to' to leave the id of Named as it is, got 2 for name.id",
      );
    });
  });

  describe('a fenced update', () => {
    it('leaves the other parts of the object of its token as they are, and its values to their owner', async () => {
      const id = await newWhole(database);
      const values = { part: { secret: 'written' } };
      for (const fencingToken of [5n, 6n]) {
        expect(await fencedUpdate(database, Whole, { id }, values, { fencingToken, key: 'spec' })).toBe(true);
      }
      await fencedUpdate(database, Whole, { id }, { count: 1 }, { fencingToken: 7n, key: 'spec' });
      expect(values).toEqual({ part: { secret: 'written' } });
      expect(await readWhole(database, id)).toMatchObject({
        count: 1,
        part: { label: 'new', secret: 'written', fencingToken: 7n },
      });
      const late = fencedUpdate(database, Whole, { id }, { count: 2 }, { fencingToken: 6n, key: 'spec' });
      await expect(late).rejects.toThrow(LockLostError);
    });

    it('leaves a part that is undefined as it is', async () => {
      const id = await newWhole(database);
      const part = Object.assign(new Part(), { label: 'next', secret: undefined });
      await fencedUpdate(database, Whole, { id }, { part }, 5n);
      await fencedUpdate(database, Whole, { id }, { count: 1, part: { label: undefined } }, 6n);
      expect(await readWhole(database, id)).toMatchObject({
        count: 1,
        part: { label: 'next', secret: 'kept', fencingToken: 6n },
      });
    });

    it.each([[{ count: undefined }], [undefined], [null], [[1]]])('of %j is refused', async (values) => {
      const update = fencedUpdate(database, Whole, { id: 1 }, values as object, {
        fencingToken: 1n,
        key: 'spec',
      });
      await expect(update).rejects.toThrow(LockConfigError);
      await expect(update).rejects.toThrow('Expected values to write');
    });
  });
});
