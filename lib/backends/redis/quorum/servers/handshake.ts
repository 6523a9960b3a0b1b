import type { Redis } from 'ioredis';
import { type Moment, momentOf, systemClock } from '../../../../core/clock.js';
import { LockConfigError } from '../../../../core/errors.js';

/** What a server tells of itself on each new connection. */
export interface Handshake {
  /** Random, made anew when the server starts. */
  readonly runId: string;
  readonly uptimeMs: number;
  /** It forgets nothing that it has answered, also when it restarts. */
  readonly isPersistent: boolean;
  /** It has rewritten its append-only file since it started, so it may have started without one. */
  readonly hasRewritten: boolean;
  /** It follows another server, so it grants nothing, and may lack what that one granted. */
  readonly isReplica: boolean;
  /** It followed another server since it started. */
  readonly wasReplica: boolean;
  readonly timeUs: number;
  readonly sentAt: Moment;
}

/** Of a server that never followed another one. */
const NO_ORIGIN = /^0*$/;
/** Of a server that has ended no rewrite since it started. */
const NO_REWRITE = '-1';

/** Asks a server who it is, how long it has been up, and what it remembers of the time before. */
export async function performHandshake(client: Redis): Promise<Handshake> {
  const sentAt = momentOf(systemClock);
  const [server, replication, persists, rewrites, [seconds, microseconds]] = await Promise.all([
    client.info('server'),
    client.info('replication'),
    isPersistent(client).catch(() => false),
    // After the line above: a rewrite that ends in between is seen by one of the two.
    client.info('persistence'),
    client.time(),
  ]);
  if (fieldOf(server, 'redis_mode') === 'cluster') {
    throw new LockConfigError(
      'Expected servers that stand alone, got a node of a Redis Cluster. Its nodes fail over to replicas, which may lack ' +
        'the newest locks: lock on the Cluster as a whole with redisBackend({ client }).',
    );
  }
  const runId = fieldOf(server, 'run_id');
  const uptimeMs = Number(fieldOf(server, 'uptime_in_seconds') || NaN) * 1_000;
  if (runId === '' || Number.isNaN(uptimeMs)) {
    throw new LockConfigError(
      'Expected a server whose INFO tells run_id and uptime_in_seconds, got one without: nobody could know what it has ' +
        'forgotten, or whether it is the same as another one. Name the servers themselves, not a proxy.',
    );
  }
  return {
    runId,
    uptimeMs,
    isPersistent: persists,
    // `CONFIG SET appendonly yes` causes a rewrite. `aof_rewrites` is newer than Redis 6, and CONFIG RESETSTAT clears it.
    hasRewritten: fieldOf(rewrites, 'aof_last_rewrite_time_sec') !== NO_REWRITE,
    isReplica: fieldOf(replication, 'role') === 'slave',
    wasReplica: !NO_ORIGIN.test(fieldOf(replication, 'master_replid2')),
    timeUs: Number(seconds) * 1e6 + Number(microseconds),
    sentAt,
  };
}

/** Whether it would forget nothing if it restarted now. Where that may not be asked, it is taken for one that forgets. */
export async function isPersistent(client: Redis): Promise<boolean> {
  const [settings, state]: [unknown, string] = await Promise.all([
    client.config('GET', '*append*'),
    client.info('persistence'),
  ]);
  const pairs = Array.isArray(settings)
    ? (settings as string[])
    : Object.entries(settings as object)
        .flat()
        .map(String);
  const valueOf = (name: string) => pairs[pairs.indexOf(name) + 1];
  const always = valueOf('appendonly') === 'yes' && valueOf('appendfsync') === 'always';
  // Until the first rewrite after `CONFIG SET appendonly yes` has ended, a restart would not read what is written.
  const isComplete = ['in_progress', 'scheduled'].every(
    (name) => fieldOf(state, `aof_rewrite_${name}`) === '0',
  );
  return always && isComplete && valueOf('no-appendfsync-on-rewrite') === 'no';
}

const fieldOf = (info: string, name: string) => new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info)?.[1] ?? '';
