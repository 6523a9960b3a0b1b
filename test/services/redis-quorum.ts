import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { StoreClock } from '../faults/injection/store-clock.js';
import { until } from '../support/until.js';
import { askRedis } from './ask-redis.js';
import { startRedis } from './redis-server.js';
import type { Service, ServiceOptions } from './service.js';

const HOUR_MS = 3_600_000;

/** So that a server that restarts has forgotten nothing. Those that start with just this have been up for an hour. */
export const PERSISTENT = ['--appendonly', 'yes', '--appendfsync', 'always'] as const;

/** Five servers that wait for one disk at each write would wait for each other: where there is one, in memory. */
const HOME = existsSync('/dev/shm') ? '/dev/shm' : tmpdir();

/** Starts so many independent servers; if one fails, none is left running. */
export async function startRedisQuorum(
  count: number,
  args: readonly string[] = PERSISTENT,
): Promise<readonly Service[]> {
  const outcomes = await Promise.allSettled(Array.from({ length: count }, () => startOne(args)));
  const started = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
  const failed = outcomes.find((outcome) => outcome.status === 'rejected');
  if (!failed) return started;
  await stopAll(started);
  throw failed.reason;
}

export const stopAll = (servers: readonly Service[]) => Promise.all(servers.map((server) => server.stop()));

async function startOne(args: readonly string[]): Promise<Service> {
  const dataDir = await mkdtemp(join(HOME, 'lock-test-quorum-'));
  const remove = () => rm(dataDir, { recursive: true, force: true });
  try {
    const start = args === PERSISTENT ? startOldRedis : startRedis;
    const server = await start({ args, dataDir });
    return { ...server, stop: () => server.stop().then(remove) };
  } catch (error) {
    await remove();
    throw error;
  }
}

/** Starts a server whose clock is then set forward, as if it had been up for an hour: new processes count it at once. */
export async function startOldRedis(options: ServiceOptions): Promise<Service> {
  const clock = await StoreClock.open();
  try {
    clock.step(-HOUR_MS);
    const server = await startRedis({ ...options, env: clock.env });
    clock.reset();
    await until(async () => (await uptimeMs(server)) >= HOUR_MS);
    return server;
  } finally {
    clock.close();
  }
}

const uptimeMs = ({ url }: Service) =>
  askRedis(url, async (admin) => {
    const [, seconds] = /uptime_in_seconds:(-?\d+)/.exec(await admin.info('server')) ?? [];
    return Number(seconds) * 1_000;
  });
