import { randomUUID } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DataSource } from 'typeorm';
import {
  Propagation,
  addTransactionalDataSource,
  deleteDataSourceByName,
  runInTransaction,
} from 'typeorm-transactional';
import { fencedUpdate } from '../../lib/backends/typeorm/index.js';
import { databases, tablesOn } from './databases.js';
import { openGate } from './gate.js';
import { Seat } from './seat.js';

/** Runs the work in a new transaction, which is that of `dataSource.manager` meanwhile. */
type Transactional = (work: () => Promise<unknown>) => Promise<unknown>;

/** Makes a data source do so. Returns how to run it, and what to call at the end. */
type Prepare = (database: DataSource) => readonly [run: Transactional, end: () => void];

/** As the library does it. A process has one storage driver. */
export const byTypeormTransactional: Prepare = (dataSource) => {
  const connectionName = randomUUID();
  addTransactionalDataSource({ name: connectionName, dataSource });
  const options = { connectionName, propagation: Propagation.REQUIRES_NEW };
  return [(work) => runInTransaction(work, options), () => deleteDataSourceByName(connectionName)];
};

const onOneConnection = databases.filter(([name]) => name === 'better-sqlite3' || name === 'libsql');

export function describeFirstHelper(prepare: Prepare): void {
  describe.each(onOneConnection)(
    'a data source whose first helper is in a transaction on %s',
    (_, storeOf) => {
      let created: DataSource;
      let database: DataSource;
      let transactional: Transactional;
      let end: () => void;
      tablesOn(storeOf, [Seat], (opened) => (created = opened));
      beforeEach(async () => {
        await created.manager.clear(Seat);
        await created.manager.insert(
          Seat,
          [1, 2, 3].map((id) => ({ id, count: 0 })),
        );
        database = await new DataSource({ ...created.options, synchronize: false }).initialize();
        [transactional, end] = prepare(database);
      });
      afterEach(async () => {
        end();
        await database.destroy();
      });

      const firstHelper = () => fencedUpdate(database, Seat, { id: 1 }, { count: 1 }, 1n);
      const write = (id: number) => database.manager.update(Seat, { id }, { count: id });
      const counts = async () => {
        const seats = await database.manager.find(Seat, { order: { id: 'ASC' } });
        return seats.map(({ count }) => count);
      };

      it('does not undo a later transaction with that of another caller', async () => {
        await transactional(firstHelper);
        const gate = openGate();
        const failing = transactional(async () => {
          await write(2);
          await gate.pass();
          throw new Error('of the other request');
        });
        failing.catch(() => undefined);
        await gate.reached;
        const writing = database.transaction((manager) => manager.update(Seat, { id: 3 }, { count: 3 }));
        // By then, a transaction that does not wait has ended.
        await nextTurn();
        gate.open();
        await expect(failing).rejects.toThrow('of the other request');
        await writing;
        expect(await counts()).toEqual([1, 0, 3]);
      });

      it.each<[string, Transactional]>([
        ['dataSource.manager', (work) => database.manager.transaction(work)],
        ['the same kind', (work) => transactional(work)],
      ])('makes a nested transaction of %s a savepoint of that transaction', async (_name, nest) => {
        await transactional(async () => {
          await firstHelper();
          await nest(() => write(2));
          const undone = nest(async () => {
            await write(3);
            throw new Error('sold out');
          });
          await expect(undone).rejects.toThrow('sold out');
        });
        expect(await counts()).toEqual([1, 2, 0]);
      });
    },
  );
}
