import type { Redis } from 'ioredis';
import { type Moment, momentOf, systemClock } from '../../../../core/clock.js';
import { LockConfigError } from '../../../../core/errors.js';

/** Whether a server copies another one, or did. */
export interface ReplicationState {
  /** Whether the server is a replica now. A replica cannot vote, and may lack what its primary has granted. */
  readonly isReplica: boolean;
  /** Whether the server was a replica at some time since its start. */
  readonly wasReplica: boolean;
  /** Names the data of the server. It is another one when the server has stopped being a replica. */
  readonly replicationId: string;
}

/** What is read from a server on each new connection. */
export interface Handshake extends ReplicationState {
  /** A random id that the server makes when it starts. */
  readonly runId: string;
  readonly uptimeMs: number;
  /** Whether a restart now would lose nothing that the server has acknowledged. */
  readonly isPersistent: boolean;
  /** Whether the server has rewritten its append-only file since its start. Then it may have started without that file. */
  readonly hasRewritten: boolean;
  readonly timeUs: number;
  readonly sentAt: Moment;
}

/** `master_replid2` of a server that was never a replica. */
const NO_ORIGIN = /^0*$/;
/** `aof_last_rewrite_time_sec` of a server that has finished no rewrite since its start. */
const NO_REWRITE = '-1';

/**
 * Reads the identity, uptime, role and persistence of a server.
 *
 * @throws LockConfigError for a Cluster node, and for a server whose INFO lacks the run id or the uptime
 */
export async function performHandshake(client: Redis): Promise<Handshake> {
  const sentAt = momentOf(systemClock);
  const [server, replication, persists, rewrites, [seconds, microseconds]] = await Promise.all([
    client.info('server'),
    readReplicationState(client),
    isPersistent(client).catch(() => false),
    // Must come after `isPersistent`, so that one of the two sees a rewrite which ends in between.
    client.info('persistence'),
    client.time(),
  ]);
  if (fieldOf(server, 'redis_mode') === 'cluster') {
    throw new LockConfigError(
      'Expected standalone servers, got a node of a Redis Cluster. Its nodes fail over to replicas, which may lack ' +
        'the newest locks: lock on the Cluster as a whole with redisBackend({ client }).',
    );
  }
  const runId = fieldOf(server, 'run_id');
  const uptimeMs = Number(fieldOf(server, 'uptime_in_seconds') || NaN) * 1_000;
  if (runId === '' || Number.isNaN(uptimeMs)) {
    throw new LockConfigError(
      'Expected a server whose INFO has run_id and uptime_in_seconds, got one without: whether it has forgotten locks, or is ' +
        'the same server as another one, could not be found out. Connect to the servers themselves, not to a proxy.',
    );
  }
  return {
    runId,
    uptimeMs,
    isPersistent: persists,
    // `CONFIG SET appendonly yes` causes a rewrite. `aof_rewrites` is newer than Redis 6, and CONFIG RESETSTAT clears it.
    hasRewritten: fieldOf(rewrites, 'aof_last_rewrite_time_sec') !== NO_REWRITE,
    ...replication,
    timeUs: Number(seconds) * 1e6 + Number(microseconds),
    sentAt,
  };
}

async function readReplicationState(client: Redis): Promise<ReplicationState> {
  const replication = await client.info('replication');
  return {
    isReplica: fieldOf(replication, 'role') === 'slave',
    wasReplica: !NO_ORIGIN.test(fieldOf(replication, 'master_replid2')),
    replicationId: fieldOf(replication, 'master_replid'),
  };
}

/** What may change while a server is up. A part that could not be read is undefined: a lost connection says nothing. */
export interface ServerState {
  readonly persists: boolean | undefined;
  readonly replication: ReplicationState | undefined;
}

export async function readServerState(client: Redis): Promise<ServerState> {
  const [persists, replication] = await Promise.all([
    isPersistent(client).catch(falseIfRefused),
    readReplicationState(client).catch(() => undefined),
  ]);
  return { persists, replication };
}

const falseIfRefused = (cause: unknown) =>
  cause instanceof Error && cause.name === 'ReplyError' ? false : undefined;

/** Whether a restart now would lose nothing that the server has acknowledged: every write goes to disk before its reply. */
async function isPersistent(client: Redis): Promise<boolean> {
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
  // Until the first rewrite after `CONFIG SET appendonly yes` has ended, a restart would not load the append-only file.
  const isComplete = ['in_progress', 'scheduled'].every(
    (name) => fieldOf(state, `aof_rewrite_${name}`) === '0',
  );
  return always && isComplete && valueOf('no-appendfsync-on-rewrite') === 'no';
}

const fieldOf = (info: string, name: string) => new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info)?.[1] ?? '';
