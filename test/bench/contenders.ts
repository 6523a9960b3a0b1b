import type { Contender, StoreName } from './contender.js';
import { all as bareGrant } from './contenders/bare-grant.js';
import { all as bareLocalQueue } from './contenders/bare-local-queue.js';
import { all as bareNotify } from './contenders/bare-notify.js';
import { all as curatorRecipe } from './contenders/curator-recipe.js';
import { all as etcd3 } from './contenders/etcd3.js';
import { all as etcdRecipe } from './contenders/etcd-recipe.js';
import { all as onQuorum } from './contenders/on-quorum.js';
import { all as murlock } from './contenders/murlock.js';
import { all as nestjsRedisLock } from './contenders/nestjs-redis-lock.js';
import { all as ours } from './contenders/ours.js';
import { all as plainMysql2 } from './contenders/plain-mysql2.js';
import { all as plainPg } from './contenders/plain-pg.js';
import { all as plainRedis } from './contenders/plain-redis.js';
import { all as plainSqlite } from './contenders/plain-sqlite.js';
import { all as redisSemaphore } from './contenders/redis-semaphore.js';
import { all as redlockUniversal } from './contenders/redlock-universal.js';
import { all as redlock } from './contenders/redlock.js';
import { all as verrou } from './contenders/verrou.js';

/** Nothing of a peer is loaded before its contender is opened. */
export const contenders: readonly Contender[] = [
  ...ours,
  ...redlock,
  ...redisSemaphore,
  ...verrou,
  ...redlockUniversal,
  ...onQuorum,
  ...murlock,
  ...nestjsRedisLock,
  ...plainRedis,
  ...plainPg,
  ...plainMysql2,
  ...plainSqlite,
  ...etcd3,
  ...etcdRecipe,
  ...curatorRecipe,
  ...bareGrant,
  ...bareLocalQueue,
  ...bareNotify,
];

export function contenderNamed(name: string, store: StoreName): Contender {
  const found = contenders.find((one) => one.name === name && one.store === store);
  if (found) return found;
  throw new Error(`there is no contender "${name}" on ${store}`);
}
