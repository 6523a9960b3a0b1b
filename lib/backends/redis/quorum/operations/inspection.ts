import type { LockRecord, TickState } from '../../../../core/backend.js';
import type { ServerRequest } from '../server-call.js';
import type { QuorumServers } from '../servers/quorum-servers.js';
import { type Timeouts, runRounds } from './round.js';
import { VoteCount } from './vote-count.js';

/**
 * Finds the holder of a key: the one that a majority of the servers names. `null` if there is none.
 *
 * @throws the reason why no majority replied in time
 */
export async function inspect(
  servers: QuorumServers,
  key: string,
  timeouts: Timeouts,
): Promise<LockRecord | null> {
  const { needed, maxFailures } = servers;
  const replies = await query(servers, { key, holder: '', command: 'inspect' }, timeouts, (sofar) => {
    const free = sofar.filter((reply) => reply === 'free');
    return repliesForTopHolder(sofar).length >= needed || free.length > maxFailures;
  });
  const held = repliesForTopHolder(replies);
  return held.length >= needed ? toLockRecord(held, maxFailures) : null;
}

/**
 * Releases the key on all servers that hold it with this fencing token. `true` if those are a majority.
 *
 * @throws the reason why no majority replied in time
 */
export async function forceRelease(
  servers: QuorumServers,
  claim: { readonly key: string; readonly fencingToken: bigint },
  timeouts: Timeouts,
): Promise<boolean> {
  const { needed, maxFailures } = servers;
  const request = { key: claim.key, holder: String(claim.fencingToken), command: 'forceRelease' };
  const releasedIn = (replies: readonly string[]) =>
    replies.filter((reply) => reply.startsWith('released')).length;
  const replies = await query(servers, request, timeouts, (sofar) => {
    const released = releasedIn(sofar);
    return released >= needed || sofar.length - released > maxFailures;
  });
  return releasedIn(replies) >= needed;
}

/**
 * Reads the newest tick that a majority knows.
 *
 * @throws the reason why no majority replied in time
 */
export async function readTicks(servers: QuorumServers, key: string, timeouts: Timeouts): Promise<TickState> {
  const { needed, maxFailures } = servers;
  const voteCount = new VoteCount(servers);
  const onReply = (reply: string, timeUs: number) => voteCount.countReply(reply, timeUs);
  const request = { key, holder: '', command: 'readTicks', onReply };
  await query(servers, request, timeouts, (sofar) => {
    const free = sofar.filter((reply) => reply.startsWith('seen 0 ')).length;
    return free > maxFailures || sofar.length - free >= needed;
  });
  return voteCount.tickState;
}

/** Sends one request to all servers, and returns the replies of those with a vote once they are enough. */
async function query(
  servers: QuorumServers,
  { onReply, ...request }: ServerRequest & { onReply?: (reply: string, timeUs: number) => void },
  timeouts: Timeouts,
  isEnough: (replies: readonly string[]) => boolean,
): Promise<readonly string[]> {
  const replies: string[] = [];
  const operation = {
    ...request,
    initialServers: servers.allBits,
    get isSettled() {
      return isEnough(replies);
    },
    onReply: (_: unknown, reply: string, timeUs: number) => {
      replies.push(reply);
      onReply?.(reply, timeUs);
    },
    conclude: () => undefined,
  };
  await runRounds(servers, [operation], timeouts);
  if (!operation.isSettled && replies.length < servers.needed)
    throw servers.noMajorityResult(timeouts.serverLimitMs).cause;
  return replies;
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
