import { postgresStore, redisStore } from '../../support/stores.js';
import { deploy } from '../scenarios/rolling-deploy.js';

/** Deploys a few times and prints what became of ticks and leadership. Takes how often. Needs the stores of the specs. */
const deploys = Number(process.argv[2] ?? 5);

for (const [name, store] of Object.entries({ redis: redisStore(), postgres: postgresStore() })) {
  for (let count = 0; count < deploys; count += 1) {
    const { handOversMs, ...ticks } = await deploy(store);
    console.log(name, { ...ticks, handOversMs: handOversMs.map((ms) => Number(ms.toFixed(1))) });
  }
}
