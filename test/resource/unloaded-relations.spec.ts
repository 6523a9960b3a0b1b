import { beforeEach, describe, expect, it } from 'vitest';
import {
  Column,
  type DataSource,
  Entity,
  JoinColumn,
  ManyToOne,
  OneToOne,
  PrimaryColumn,
  VersionColumn,
} from 'typeorm';
import {
  FencingToken,
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
}

@Entity()
class Profile {
  @PrimaryColumn('int')
  id!: number;

  @OneToOne(() => Order, ({ profile }) => profile, { createForeignKeyConstraints: false })
  @JoinColumn()
  order!: { id: number };
}

/** Relations with an initialiser, as Nest's examples of entities have them. */
@Entity()
class Order {
  @PrimaryColumn('int')
  id!: number;

  @Column({ type: 'varchar', length: 10, default: 'NEW' })
  state!: string;

  @ManyToOne(() => Customer, { eager: true, createForeignKeyConstraints: false })
  customer: Customer | null = null;

  @OneToOne(() => Profile, ({ order }) => order, { eager: true })
  profile: Profile | null = null;

  @VersionColumn()
  version!: number;

  @FencingToken()
  fencingToken?: bigint;
}

const FENCE = { key: 'spec', fencingToken: 7n };

describe.each(databases)(
  'a row whose relations are not loaded, but null by an initialiser, on %s',
  (_, storeOf) => {
    let database: DataSource;
    tablesOn(storeOf, [Customer, Order, Profile], (opened) => (database = opened));

    beforeEach(async () => {
      const { manager } = database;
      for (const entity of [Profile, Order, Customer])
        await manager.createQueryBuilder().delete().from(entity).execute();
      await manager.insert(Customer, [{ id: 1 }, { id: 2 }]);
      await manager.insert(Order, { id: 1, customer: { id: 1 } });
      await manager.insert(Profile, { id: 1, order: { id: 1 } });
    });

    const stored = () => database.manager.findOneByOrFail(Order, { id: 1 });
    const related = { customer: { id: 1 }, profile: { id: 1 } };

    it('keeps them when it is saved under a row lock', async () => {
      await withRowLock(database, Order, { id: 1 }, async (order, manager) => {
        order.state = 'PAID';
        await manager.save(order);
      });
      expect(await stored()).toMatchObject({ state: 'PAID', ...related });
    });

    it('keeps them when it is saved after a fenced read', async () => {
      const order = (await fencedFindOne(database, Order, { id: 1 }, FENCE))!;
      await database.manager.save(Object.assign(order, { state: 'PAID' }));
      expect(await stored()).toMatchObject({ state: 'PAID', ...related });
    });

    it('keeps them when its values are written after a fenced read', async () => {
      const { version: _version, ...order } = (await fencedFindOne(database, Order, { id: 1 }, FENCE))!;
      await fencedUpdate(database, Order, { id: 1 }, { ...order, state: 'PAID' }, FENCE);
      expect(await stored()).toMatchObject({ state: 'PAID', ...related });
    });

    it.each([[{ id: 2 }], [null]])('gets another one by an optimistic update: %j', async (customer) => {
      // The driver libsql cannot bind null as the first value.
      const change = (order: Order) => void Object.assign(order, { state: 'PAID', customer });
      await optimisticUpdate(database, Order, { id: 1 }, change);
      expect(await stored()).toMatchObject({ ...related, customer });
    });
  },
);
