import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import {
  betterSqlite3Store,
  etcdStore,
  mariadbStore,
  postgresStore,
  redisStore,
  zookeeperStore,
} from '../support/stores.js';
import { tempFolder } from '../support/temp-folder.js';
import { checkProperty } from './property-check.js';
import {
  type OpenBackendPair,
  openBackendPair,
  openTimedRedisPair,
  LONG_SESSION_MS,
} from './backend-pairs.js';

/** Many more, with other seeds: `npm run properties`. */
const PLAYS = { seed: 1, count: 300 };

const folder = tempFolder();
const stages: readonly (readonly [string, () => Promise<OpenBackendPair>])[] = [
  ['the script of Redis, in time that is turned, is the line store', openTimedRedisPair],
  ['Redis is the memory backend', () => openBackendPair(redisStore())],
  ['etcd is the memory backend', () => openBackendPair(etcdStore())],
  ['zookeeper is the memory backend', () => openBackendPair(zookeeperStore(LONG_SESSION_MS))],
  ['postgres is the memory backend', () => openBackendPair(postgresStore())],
  ['mariadb is the memory backend', () => openBackendPair(mariadbStore())],
  [
    'better-sqlite3 is the memory backend',
    () => openBackendPair(betterSqlite3Store(join(folder, 'play.db'))),
  ],
];

describe.each(stages)('to whoever asks, %s', (_, open) => {
  let stage: OpenBackendPair | undefined;
  afterAll(() => stage?.close());

  it(`in ${PLAYS.count} plays`, async () => {
    stage = await open();
    await expect(checkProperty(stage, PLAYS)).resolves.toBeUndefined();
  }, 120_000);
});
