import { type DataSource } from 'typeorm';
import { optimisticUpdate } from '../../../../lib/backends/typeorm/index.js';
import type { Driver, Observer, RecipeContext } from './driver.js';
import { dropTables, entityOf, openTables } from './tables.js';

interface Task {
  id: number;
  progress: number;
}

/** By somebody else, while a worker writes its own. */
export const NUDGE = 1_000;
const RECENT = 3;

/** Makes a task and works on one; each third call changes one of the newest tasks. */
export async function taskClaimDriver(context: RecipeContext): Promise<Driver> {
  const work = context.exported[context.declares] as (database: DataSource) => Promise<unknown>;
  const database = await openTables(context);
  const entity = entityOf(database) as new () => Task;
  const tasks = database.getRepository(entity);
  let calls = 0;
  return {
    providers: [],
    async next() {
      if ((calls += 1) % 3 !== 0) {
        await tasks.insert({});
        return { details: {}, make: () => work(database) };
      }
      const newest = await tasks.find({ order: { id: 'DESC' }, take: RECENT });
      const id = newest[Math.floor(Math.random() * newest.length)]?.id ?? 0;
      return { details: { nudged: id }, make: () => nudge(database, entity, id) };
    },
    close: () => database.destroy(),
  };
}

const nudge = (database: DataSource, entity: new () => Task, id: number) =>
  optimisticUpdate(database, entity, { id }, (task) => {
    task.progress += NUDGE;
  });

export async function taskClaimObserver(context: RecipeContext): Promise<Observer> {
  const database = await openTables(context, { synchronize: true });
  const tasks = database.getRepository(entityOf(database));
  return {
    async read() {
      const all = await tasks.find();
      await tasks.clear();
      return all;
    },
    close: () => dropTables(database),
  };
}
