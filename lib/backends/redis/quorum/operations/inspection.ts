import type { LockRecord } from '../../../../core/backend.js';
import { NO_BALLOT } from '../server-call.js';
import { type RoundRequest, Round } from './round.js';
import type { QuorumServer } from '../servers/quorum-server.js';
import type { QuorumServers } from '../servers/quorum-servers.js';

type IsEnough = (replies: readonly string[]) => boolean;

/** A question about one key, whose answer is what a majority says, each by itself. */
class KeyQuery implements RoundRequest {
  readonly replies: string[] = [];
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

  onReply(_server: QuorumServer, reply: string): void {
    this.replies.push(reply);
  }

  onUncountedReply(): void {
    // It has no vote.
  }

  onNoReply(): void {
    // The others may do.
  }
}

/** Who holds the key on a majority of the servers. */
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

/** Frees the key, if a majority holds it by this fencing token. */
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

/** What those said who name the holder that most of them name. */
function repliesForTopHolder(replies: readonly string[]): readonly string[] {
  const byHolder = new Map<string, string[]>();
  for (const reply of replies) {
    const [kind, , holder] = reply.split(' ');
    if (kind !== 'held' || holder === undefined) continue;
    byHolder.set(holder, [...(byHolder.get(holder) ?? []), reply]);
  }
  return [...byHolder.values()].sort((one, other) => other.length - one.length)[0] ?? [];
}

/** `held remainingMs holder token sinceUs instance`, told by a majority. It is held for as long as a majority says so. */
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
