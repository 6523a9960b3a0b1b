import { randomInt } from 'node:crypto';
import { Redis } from 'ioredis';
import { DataSource } from 'typeorm';
import type { Provider } from '@nestjs/common';
import { type Driver, type Observer, type RecipeContext, classOf } from './driver.js';
import { dropTables, entityOf, openTables } from './tables.js';

/** So large that two sums of amounts are hardly ever the same. */
const LARGEST = 1_000_000;

/** Withdraws from the account of the round, which all processes share. */
export async function fencedWriteDriver(context: RecipeContext): Promise<Driver> {
  const recipe = classOf(context);
  const { provider, close } = await clientOf(context);
  return {
    providers: [recipe, provider],
    next(app, round) {
      const amount = randomInt(1, LARGEST);
      return { details: { amount }, make: () => app.get(recipe)['withdraw']!(round, amount) };
    },
    close,
  };
}

async function clientOf(context: RecipeContext): Promise<{ provider: Provider; close: () => Promise<void> }> {
  const { resource } = context;
  if (resource && 'redis' in resource) {
    const client = new Redis(resource.redis, { keyPrefix: resource.prefix });
    return {
      provider: { provide: Redis, useValue: client },
      close: async () => client.disconnect(),
    };
  }
  const database = await openTables(context);
  return { provider: { provide: DataSource, useValue: database }, close: () => database.destroy() };
}

/** Opens an account for each round, and reads it when the round is over. */
export async function fencedWriteObserver(context: RecipeContext): Promise<Observer> {
  const { resource } = context;
  if (resource && 'redis' in resource) {
    const client = new Redis(resource.redis, { keyPrefix: resource.prefix });
    return {
      read: async (round) => ({ balance: Number((await client.get(`balance:${round}`)) ?? 0) }),
      close: async () => client.disconnect(),
    };
  }
  const database = await openTables(context, { synchronize: true });
  const accounts = database.getRepository(entityOf(database));
  await accounts.insert({ id: 1, balance: 0 });
  return {
    async read(round) {
      await accounts.insert({ id: round + 1, balance: 0 });
      const [account] = await accounts.findBy({ id: round });
      return account;
    },
    close: () => dropTables(database),
  };
}
