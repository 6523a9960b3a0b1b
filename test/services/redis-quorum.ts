import { startRedis } from './redis-server.js';
import type { Service } from './service.js';

/** So that a server that restarts has forgotten nothing, and a new one may vote at once. */
export const PERSISTENT = ['--appendonly', 'yes', '--appendfsync', 'always'] as const;

/** Starts so many independent servers; if one fails, none is left running. */
export async function startRedisQuorum(
  count: number,
  args: readonly string[] = PERSISTENT,
): Promise<readonly Service[]> {
  const outcomes = await Promise.allSettled(Array.from({ length: count }, () => startRedis({ args })));
  const started = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
  const failed = outcomes.find((outcome) => outcome.status === 'rejected');
  if (!failed) return started;
  await stopAll(started);
  throw failed.reason;
}

export const stopAll = (servers: readonly Service[]) => Promise.all(servers.map((server) => server.stop()));
