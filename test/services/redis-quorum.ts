import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startRedis } from './redis-server.js';
import type { Service } from './service.js';

/** So that a server that restarts has forgotten nothing, and a new one may vote at once. */
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
    const server = await startRedis({ args, dataDir });
    return { ...server, stop: () => server.stop().then(remove) };
  } catch (error) {
    await remove();
    throw error;
  }
}
