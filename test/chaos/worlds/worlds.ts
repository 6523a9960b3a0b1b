import { betterSqlite3World } from './better-sqlite3.js';
import { mariadbWorld } from './mariadb.js';
import { postgresWorld } from './postgres.js';
import { redisWorld } from './redis.js';
import { redlockWorld } from './redlock.js';
import type { World, WorldOptions } from './world.js';

/** Every kind of store that chaos can come over. */
export const worlds: Readonly<Record<string, (options: WorldOptions) => Promise<World>>> = {
  redis: redisWorld,
  postgres: postgresWorld,
  mariadb: mariadbWorld,
  'better-sqlite3': betterSqlite3World,
  redlock: redlockWorld,
};
