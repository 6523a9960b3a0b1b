import type { LockRecord, TickState } from '../../../../core/backend.js';
import { NO_BALLOT } from '../server-call.js';
import type { QuorumServer } from '../servers/quorum-server.js';
import type { QuorumServers } from '../servers/quorum-servers.js';
import { Round, type RoundRequest } from './round.js';
import { VoteCount } from './vote-count.js';

type IsEnough = (replies: readonly string[]) => boolean;

/** A query about one key, which collects the replies of all servers with a vote. */
class KeyQuery implements RoundRequest {
  readonly replies: string[] = [];
  readonly timesUs: number[] = [];
  readonly key: string;
  readonly holder: string;
  readonly command: string;
  readonly initialServers: number;
  readonly #isEnough: IsEnough;

  constructor(
    request: { key: string; holder: string; command: string },
    initialServers: number,
    isEnough: IsEnough,
  ) {
    this.key = request.key;
    this.holder = request.holder;
    this.command = request.command;
    this.initialServers = initialServers;
    this.#isEnough = isEnough;
  }

  get isSettled(): boolean {
    return this.#isEnough(this.replies);
  }

  onReply(_server: QuorumServer, reply: string, timeUs: number): void {
    this.replies.push(reply);
    this.timesUs.push(timeUs);
  }

  onUncountedReply(): void {
    // Only servers with a vote count.
  }

  onNoReply(): void {
    // The other servers may be enough.
  }
}

/**
 * Finds the holder of a key: the one that a majority of the servers names. `null` if there is none.
 *
 * @throws the reason why no majority replied in time
 */
export async function inspect(
  servers: QuorumServers,
  key: string,
  timeoutMs: number,
): Promise<LockRecord | null> {
  const { needed, maxFailures } = servers;
  const isEnough = (replies: readonly string[]) =>
    repliesForTopHolder(replies).length >= needed ||
    replies.filter((reply) => reply === 'free').length > maxFailures;
  const replies = await runQuery(
    servers,
    new KeyQuery({ key, holder: '', command: 'inspect' }, servers.allBits, isEnough),
    timeoutMs,
  );
  const held = repliesForTopHolder(replies);
  return held.length >= needed ? toLockRecord(held, maxFailures) : null;
}

/**
 * Reads the newest tick that a majority knows.
 *
 * @throws the reason why no majority replied in time
 */
export async function readTicks(servers: QuorumServers, key: string, timeoutMs: number): Promise<TickState> {
  const { needed, maxFailures, allBits } = servers;
  const isEnough = (replies: readonly string[]) => {
    const free = replies.filter((reply) => reply.startsWith('seen 0 ')).length;
    return free > maxFailures || replies.length - free >= needed;
  };
  const query = new KeyQuery({ key, holder: '', command: 'readTicks' }, allBits, isEnough);
  const replies = await runQuery(servers, query, timeoutMs);
  const voteCount = new VoteCount(servers);
  for (const [index, reply] of replies.entries()) voteCount.countReply(reply, query.timesUs[index] ?? 0);
  return voteCount.tickState;
}

/**
 * Releases the key on all servers that hold it with this fencing token. `true` if those are a majority.
 *
 * @throws the reason why no majority replied in time
 */
export async function forceRelease(
  servers: QuorumServers,
  key: string,
  token: bigint,
  timeoutMs: number,
): Promise<boolean> {
  const { needed, maxFailures } = servers;
  const isReleased = (reply: string) => reply.startsWith('released');
  const isEnough = (replies: readonly string[]) =>
    replies.filter(isReleased).length >= needed ||
    replies.filter((reply) => !isReleased(reply)).length > maxFailures;
  const query = new KeyQuery(
    { key, holder: String(token), command: 'forceRelease' },
    servers.allBits,
    isEnough,
  );
  return (await runQuery(servers, query, timeoutMs)).filter(isReleased).length >= needed;
}

async function runQuery(
  servers: QuorumServers,
  query: KeyQuery,
  timeoutMs: number,
): Promise<readonly string[]> {
  const round = new Round({ servers, requests: [query], ballot: NO_BALLOT, timeoutMs });
  await round.done;
  if (!query.isSettled && query.replies.length < servers.needed)
    throw servers.noMajorityResult(timeoutMs).cause;
  return query.replies;
}

/** The replies that name the holder which most servers name. */
function repliesForTopHolder(replies: readonly string[]): readonly string[] {
  const byHolder = new Map<string, string[]>();
  for (const reply of replies) {
    const [kind, , holder] = reply.split(' ');
    if (kind !== 'held' || holder === undefined) continue;
    byHolder.set(holder, [...(byHolder.get(holder) ?? []), reply]);
  }
  return [...byHolder.values()].sort((one, other) => other.length - one.length)[0] ?? [];
}

/** Parses the replies of a majority, `held remainingMs holder token sinceUs instance`. The lock ends when the majority ends. */
function toLockRecord(held: readonly string[], maxFailures: number): LockRecord {
  const leases = held.map((reply) => Number(reply.split(' ')[1])).sort((one, other) => one - other);
  const [, , holder = '', token = '', sinceUs, ...instance] = (held[0] ?? '').split(' ');
  return {
    holder,
    instance: instance.join(' '),
    fencingToken: BigInt(token),
    sinceMs: Math.floor(Number(sinceUs) / 1_000),
    remainingMs: leases[Math.max(held.length - maxFailures - 1, 0)] ?? 0,
  };
}
