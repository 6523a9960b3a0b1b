import { setTimeout as sleep } from 'node:timers/promises';
import type { INestApplicationContext } from '@nestjs/common';
import { ScheduleModule } from '@nestjs/schedule';
import { type Driver, type RecipeContext, classOf } from './driver.js';

const CALL_EACH_MS = 100;
const CALLS_FOR_EACH_TENANT = 30;

/** The scheduler calls the jobs. A class that adds and removes jobs is asked for both, and
 * one that has a status for that. */
export function jobDriver(context: RecipeContext): Driver {
  const recipe = classOf(context);
  const call = async (app: INestApplicationContext, method: string, ...args: unknown[]) =>
    method in recipe.prototype ? app.get(recipe)[method]!(...args) : undefined;
  let calls = 0;
  return {
    providers: [recipe],
    imports: [ScheduleModule.forRoot()],
    started: (app) => call(app, 'add', 'tenant', '* * * * * *'),
    next: (app) => ({
      details: {},
      async make() {
        await sleep(CALL_EACH_MS);
        await call(app, 'status');
        calls += 1;
        if (calls % CALLS_FOR_EACH_TENANT !== 0) return;
        await call(app, 'remove', 'tenant');
        await call(app, 'add', 'tenant', '* * * * * *');
      },
    }),
  };
}
