import { setTimeout as sleep } from 'node:timers/promises';
import { LeaderElection } from '../../../../lib/index.js';
import { type Driver, type RecipeContext, classOf } from './driver.js';

const CALL_EACH_MS = 20;
/** So that terms end also without a fault, and what follows them is run. */
const RESIGN_EACH = 100;

/** The election calls what it calls; the user's own calls are made in turn. */
export function leaderDriver(context: RecipeContext): Driver {
  const recipe = classOf(context);
  const { elections, leaseMs } = context;
  let calls = 0;
  return {
    providers: [recipe],
    // An election has a lease of 15 s unless somebody joins with another.
    join: (all) => {
      for (const name of elections) all.join(name, { leaseMs });
    },
    next: (app) => ({
      details: {},
      async make() {
        await sleep(CALL_EACH_MS);
        if ((calls += 1) % RESIGN_EACH === 0) return resignAll(app.get(LeaderElection), elections);
        return app.get(recipe)[calls % 2 === 0 ? 'flush' : 'who']!();
      },
    }),
  };
}

async function resignAll(all: LeaderElection, names: readonly string[]): Promise<void> {
  for (const name of names) await all.join(name).resign();
}
