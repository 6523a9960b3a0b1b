import { systemClock } from '../../../../core/clock.js';
import type { LockRecord } from '../../../../core/lock-record.js';
import { delay } from '../../../../core/real-timers.js';
import { rejectWhenRefused } from '../../../../core/requests/store-timeout.js';
import type { TickState } from '../../../../core/tick.js';
import { SLOW_PAUSE_MS, type ServerRequest, fixedWidth } from '../server-call.js';
import type { QuorumServer } from '../servers/quorum-server.js';
import type { QuorumServers, Timeouts } from '../servers/quorum-servers.js';
import { runRounds } from './round.js';
import { VoteCount, pauseVersionOf } from './vote-count.js';

const MAX_VERSION_STEP = 1_000;

/** After this time, an acquisition that was refused has released the votes that it got. */
const REFUSED_AFTER_MS = 100;

/**
 * Finds the holder of a key: the one that a majority of the servers names, or may name, if servers do not reply. `null` if there
 * is none.
 *
 * @throws the reason why no majority replied in time
 */
export async function inspect(
  servers: QuorumServers,
  key: string,
  timeouts: Timeouts,
): Promise<LockRecord | null> {
  const endsAtMs = systemClock.monotonicMs() + timeouts.timeoutMs;
  const [first, ...others] = await findHolder(servers, key, timeouts);
  if (first === undefined) return null;
  if (others.length + 1 >= servers.needed) return toLockRecord([first, ...others], servers);
  await delay(REFUSED_AFTER_MS);
  const again = await findHolder(servers, key, limitsUntil(endsAtMs, timeouts));
  const isSame = again.some((reply) => holderOf(reply) === holderOf(first));
  return isSame ? toLockRecord(again, servers) : null;
}

const holderOf = (reply: string) => reply.split(' ')[2] ?? reply;

async function findHolder(
  servers: QuorumServers,
  key: string,
  timeouts: Timeouts,
): Promise<readonly string[]> {
  const { replies } = await read(servers, { key, holder: '', command: 'inspect' }, timeouts, holderOf);
  return possibleMajority(servers, replies, { answerOf: holderOf, none: 'free' }) ?? [];
}

/**
 * Releases the key on all servers that hold it with this fencing token. `true` if those are a majority, or may be one with the
 * servers that do not reply: their votes alone hold nothing.
 *
 * @throws the reason why no majority replied in time
 */
export async function forceRelease(
  servers: QuorumServers,
  claim: { readonly key: string; readonly fencingToken: bigint },
  timeouts: Timeouts,
): Promise<boolean> {
  const request = { key: claim.key, holder: String(claim.fencingToken), command: 'forceRelease' };
  const outcomeOf = (reply: string) => reply.replace(' waiting', '');
  const { replies } = await query(servers, request, timeouts, outcomeOf);
  return possibleMajority(servers, replies, { answerOf: outcomeOf, none: 'gone' }) !== undefined;
}

/**
 * The replies with the same answer that are a majority, or would be one with those of the servers that have not replied. As
 * few as hold the lock may be up, and an acquisition is refused then too. `undefined` if the answer of the majority is `none`.
 */
function possibleMajority(
  servers: QuorumServers,
  replies: readonly TimedReply[],
  { answerOf, none }: { readonly answerOf: (reply: string) => unknown; readonly none: string },
): readonly string[] | undefined {
  const found = replies.map(({ reply }) => reply).filter((reply) => reply !== none);
  if (replies.length - found.length >= servers.needed) return undefined;
  const groups = found.map((reply) => found.filter((other) => answerOf(other) === answerOf(reply)));
  const [largest] = groups.sort((one, other) => other.length - one.length);
  const silentCount = servers.all.length - replies.length;
  return largest && largest.length + silentCount >= servers.needed ? largest : undefined;
}

/**
 * Reads the newest tick that a majority knows.
 *
 * @throws the reason why no majority replied in time
 */
export async function readTicks(servers: QuorumServers, key: string, timeouts: Timeouts): Promise<TickState> {
  return (await readVotes(servers, key, timeouts)).tickState;
}

/**
 * Pauses or resumes the ticks of a key on a majority. The version is larger than that of any earlier pause or resumption
 * that a majority knows.
 *
 * @throws the reason why no majority replied in time
 */
export async function setPaused(
  servers: QuorumServers,
  { key, isPaused }: { readonly key: string; readonly isPaused: boolean },
  timeouts: Timeouts,
): Promise<void> {
  const endsAtMs = systemClock.monotonicMs() + timeouts.timeoutMs;
  const { newestPause, tickState } = await readVotes(servers, key, timeouts);
  // A pause that failed may still be on a server that has not replied now, so even a resumption of a job that is not
  // paused is written. It changes no tick.
  const isResumed = !isPaused && !tickState.isPaused;
  // Two calls at once must differ, even if the clocks were set back.
  const nextVersion = pauseVersionOf(newestPause) + 1 + Math.floor(Math.random() * MAX_VERSION_STEP);
  const version = Math.max(servers.ballots.nextUs(0), nextVersion);
  const keepsTick = isResumed || tickState.heldForMs > 0 ? 1 : 0;
  // The servers' clocks differ: with a time of its own on each, another majority could know an older tick.
  const nowTick = fixedWidth(Math.floor(servers.ballots.nowUs / 1_000) * 1_000);
  const command = `pause ${isPaused ? 'P' : 'R'}${fixedWidth(version)} ${keepsTick} ${nowTick}`;
  const limits = limitsUntil(endsAtMs, timeouts);
  const { serverLimitMs } = limits;
  await rejectWhenRefused(systemClock, serverLimitMs, async (onSend) => {
    onSend();
    const request = { key, holder: '', command };
    const { agreeing } = await query(servers, request, limits, (reply) => reply);
    if (agreeing.length < servers.needed) throw servers.noMajorityResult(serverLimitMs).cause;
    if (agreeing[0] === 'outdated')
      throw new Error('the job was paused or resumed by another call at the same time');
    if (agreeing[0] !== 'written') throw servers.noMajorityResult(serverLimitMs).cause;
  });
}

async function readVotes(servers: QuorumServers, key: string, timeouts: Timeouts): Promise<VoteCount> {
  const isFree = (reply: string) => reply.startsWith('seen 0 ');
  const { replies } = await read(servers, { key, holder: '', command: 'readTicks' }, timeouts, isFree);
  const voteCount = new VoteCount(servers);
  for (const { reply, timeUs } of replies) voteCount.countReply(reply, timeUs);
  return voteCount;
}

/** A reply, and the time of the server's clock. */
interface TimedReply {
  readonly reply: string;
  readonly timeUs: number;
}

/**
 * As {@link query}, for a request that changes nothing: repeated until the time is nearly over, as long as a majority that has
 * votes can be reached, but was too slow.
 */
const read: typeof query = async (servers, request, timeouts, answerOf) => {
  const endsAtMs = systemClock.monotonicMs() + timeouts.timeoutMs;
  const canReply = (server: QuorumServer) => server.hasVote && server.isReachable;
  for (let limits = timeouts; ; limits = limitsUntil(endsAtMs, timeouts)) {
    try {
      return await query(servers, request, limits, answerOf);
    } catch (error) {
      await delay(SLOW_PAUSE_MS);
      const isOver = systemClock.monotonicMs() + timeouts.serverLimitMs > endsAtMs;
      if (isOver || servers.all.filter(canReply).length < servers.needed) throw error;
    }
  }
};

/** What is left of the limits of a request that began earlier. */
export function limitsUntil(endsAtMs: number, { serverLimitMs, closed }: Timeouts): Timeouts {
  const timeoutMs = Math.max(endsAtMs - systemClock.monotonicMs(), 1);
  return { timeoutMs, serverLimitMs: Math.min(serverLimitMs, timeoutMs), closed };
}

/**
 * Sends one request to all servers, until a majority agrees on the answer, as `answerOf` finds it in a reply. Returns all
 * replies, and of those the largest group with the same answer.
 */
async function query(
  servers: QuorumServers,
  request: ServerRequest,
  timeouts: Timeouts,
  answerOf: (reply: string) => unknown,
): Promise<{ readonly replies: readonly TimedReply[]; readonly agreeing: readonly string[] }> {
  const replies: TimedReply[] = [];
  let agreeing: readonly string[] = [];
  const operation = {
    ...request,
    initialServers: servers.allBits,
    get isSettled() {
      return agreeing.length >= servers.needed;
    },
    onReply: (_: unknown, reply: string, timeUs: number) => {
      replies.push({ reply, timeUs });
      const same = replies.filter((other) => answerOf(other.reply) === answerOf(reply));
      if (same.length > agreeing.length) agreeing = same.map((one) => one.reply);
    },
    conclude: () => undefined,
  };
  await runRounds(servers, [operation], timeouts);
  if (replies.length < servers.needed) throw servers.noMajorityResult(timeouts.serverLimitMs).cause;
  return { replies, agreeing };
}

/** Parses the replies of a majority, `held remainingMs holder token sinceUs instance`. The lock ends when the majority ends. */
function toLockRecord(held: readonly string[], { needed, maxFailures }: QuorumServers): LockRecord {
  const leases = held.map((reply) => Number(reply.split(' ')[1])).sort((one, other) => one - other);
  const [, , holder = '', token = '', sinceUs, ...instance] = (held[0] ?? '').split(' ');
  return {
    holder,
    instance: instance.join(' '),
    fencingToken: BigInt(token),
    sinceMs: Math.floor(Number(sinceUs) / 1_000),
    remainingMs: leases[Math.max(held.length - maxFailures - 1, 0)] ?? 0,
    // A server that has not replied may hold nothing.
    ...(held.length < needed && { isUncertain: true }),
  };
}
