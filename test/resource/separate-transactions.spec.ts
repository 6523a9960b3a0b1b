import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { DataSource, EntityManager } from 'typeorm';
import {
  fencedFindOne,
  fencedUpdate,
  transactionLock,
  withRowLock,
} from '../../lib/backends/typeorm/index.js';
import { LockLostError } from '../../lib/core/errors.js';
import { databases, tablesOn } from './databases.js';
import { openGate } from './gate.js';
import { Seat } from './seat.js';

let nextId = 1;

// On MySQL and MariaDB, transactionLock needs a table.
describe.each(databases.filter(([name]) => !['mariadb', 'mysql'].includes(name)))(
  'two transactions of different callers on %s',
  (_, storeOf) => {
    let database: DataSource;
    tablesOn(storeOf, [Seat], (opened) => (database = opened));

    async function newSeat(): Promise<number> {
      nextId += 1;
      await database.manager.insert(Seat, { id: nextId, count: 0 });
      // The first helper of a data source puts its guard in place.
      await fencedUpdate(database, Seat, { id: nextId }, {}, 1n);
      return nextId;
    }

    const countOf = async (id: number) => (await database.manager.findOneByOrFail(Seat, { id })).count;

    it('are not undone together, and a token that was written is kept', async () => {
      const [id, other] = [await newSeat(), await newSeat()];
      const gate = openGate();
      const failing = database.transaction(async (manager) => {
        await manager.findOneBy(Seat, { id: other });
        await gate.pass();
        throw new Error('of the other request');
      });
      await gate.reached;
      const writing = database.transaction(async (manager) => {
        const seat = await fencedFindOne(manager, Seat, { id }, 9n);
        await fencedUpdate(manager, Seat, { id }, { count: seat!.count + 10 }, 9n);
      });
      await Promise.race([writing, sleep(50)]);
      gate.open();
      await expect(failing).rejects.toThrow('of the other request');
      await writing;
      expect(await countOf(id)).toBe(10);
      await expect(fencedUpdate(database, Seat, { id }, { count: 1 }, 8n)).rejects.toThrow(LockLostError);
    });

    it.each<[string, (manager: EntityManager, id: number) => Promise<unknown>]>([
      ['transactionLock', (manager, id) => transactionLock(manager, `seat:${id}`)],
      ['withRowLock', (manager, id) => withRowLock(manager, Seat, { id }, () => undefined)],
    ])('exclude each other by %s', async (_name, lock) => {
      const id = await newSeat();
      const addOne = () =>
        database.transaction(async (manager) => {
          await lock(manager, id);
          const { count } = await manager.findOneByOrFail(Seat, { id });
          await sleep(20);
          await manager.update(Seat, { id }, { count: count + 1 });
        });
      await Promise.all([0, 5, 10].map((ms) => sleep(ms).then(addOne)));
      expect(await countOf(id)).toBe(3);
    });

    it('may be nested: the inner one is a part of the outer one', async () => {
      const id = await newSeat();
      await database.transaction(async (manager) => {
        await manager.transaction((inner) => inner.update(Seat, { id }, { count: 5 }));
      });
      expect(await countOf(id)).toBe(5);
    });
  },
);
