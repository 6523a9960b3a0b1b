import { join } from 'node:path';
import { afterAll, describe, expect, it } from '@jest/globals';
import { betterSqlite3Store, mariadbStore, postgresStore, redisStore } from '../stores.js';
import { tempFolder } from '../temp-folder.js';
import { rehearse } from './rehearse.js';
import { type OpenStage, stageOn, timedRedisStage } from './stages.js';

/** Many more, with other seeds: `npm run properties`. */
const PLAYS = { seed: 1, count: 300 };

const folder = tempFolder();
const stages: readonly (readonly [string, () => Promise<OpenStage>])[] = [
  ['the script of Redis, in time that is turned, is the line store', timedRedisStage],
  ['Redis is the memory backend', () => stageOn(redisStore())],
  ['postgres is the memory backend', () => stageOn(postgresStore())],
  ['mariadb is the memory backend', () => stageOn(mariadbStore())],
  ['better-sqlite3 is the memory backend', () => stageOn(betterSqlite3Store(join(folder, 'play.db')))],
];

describe.each(stages)('to whoever asks, %s', (_, open) => {
  let stage: OpenStage | undefined;
  afterAll(() => stage?.close());

  it(`in ${PLAYS.count} plays`, async () => {
    stage = await open();
    await expect(rehearse(stage, PLAYS)).resolves.toBeUndefined();
  });
});
