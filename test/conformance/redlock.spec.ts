import { afterAll, beforeAll, describe } from 'vitest';
import { Redis } from 'ioredis';
import { redlockBackend } from '../../lib/backends/redis/quorum/redlock-backend.js';
import { backendLaws } from '../../lib/testing/laws/backend-laws.js';
import type { Law } from '../../lib/testing/laws/law.js';
import { startRedisQuorum, stopAll } from '../services/redis-quorum.js';
import type { Service } from '../services/service.js';
import { type Outcomes, describeLawOutcomes, lawsOfSettings, startLaws } from './law-suite.js';

const servers: Service[] = [];
const admins: Redis[] = [];
afterAll(async () => {
  for (const admin of admins) admin.disconnect();
  await stopAll(servers);
});

interface Quorum {
  readonly count: number;
  readonly down: number;
  readonly laws?: readonly Law[];
}

/** Starts the laws on so many servers, some of which are down. */
async function lookOn({ count, down, laws = backendLaws }: Quorum): Promise<Outcomes> {
  const started = await startRedisQuorum(count);
  servers.push(...started);
  for (const server of started.slice(0, down)) server.kill('SIGKILL');
  const up = started.slice(down).map(({ url }) => new Redis(url));
  admins.push(...up);
  const clients = started.map(({ url }) => ({ url }));
  const forget = async (key: string) => {
    await Promise.all(up.map((admin) => admin.del(`{${key}}:vote`)));
  };
  return startLaws({ open: () => redlockBackend({ clients }), forget }, { laws });
}

let onFive: Outcomes;
let onThree: Outcomes;
beforeAll(async () => {
  [onFive, onThree] = await Promise.all([
    lookOn({ count: 5, down: 0 }),
    lookOn({ count: 3, down: 1, laws: lawsOfSettings }),
  ]);
});

describe('on five servers', () => void describeLawOutcomes('redlock', () => onFive));

describe('on three servers, one of which is down', () =>
  void describeLawOutcomes('redlock', () => onThree, lawsOfSettings));
