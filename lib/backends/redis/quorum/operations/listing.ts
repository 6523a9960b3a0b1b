import type { Redis } from 'ioredis';
import { systemClock } from '../../../../core/clock.js';
import type { ListRequest, ListedLock, LockPage } from '../../../../core/lock-record.js';
import { wrongCursorError } from '../../../../core/list-options.js';
import { type ScanTarget, listByScan } from '../../key-scan.js';
import { keyOfVoteKey, voteKeyOf, votePatternOf } from '../server-call.js';
import type { QuorumServers, Timeouts } from '../servers/quorum-servers.js';
import { inspect, limitsUntil } from './majority-queries.js';

interface Listing {
  readonly request: ListRequest;
  readonly keyPrefix: string;
  readonly timeouts: Timeouts;
}

/**
 * Lists the keys that a majority of the servers holds. Scans as many servers as share at least one server with every
 * majority, one after the other.
 *
 * @throws the reason why too few servers replied
 */
export async function list(
  servers: QuorumServers,
  { request, keyPrefix, timeouts }: Listing,
): Promise<LockPage> {
  const endsAtMs = systemClock.monotonicMs() + timeouts.timeoutMs;
  await servers.waitUntilReady(timeouts);
  const runOn = async <T>(name: string, run: (client: Redis) => Promise<T>): Promise<T> => {
    const server = servers.all.find((one) => one.name === name);
    if (!server) throw wrongCursorError(name);
    try {
      return await server.withClient(run);
    } catch (cause) {
      throw new Error(`${name} failed while its locks were listed: list again from the first page`, {
        cause,
      });
    }
  };
  const inspectKey = async (key: string): Promise<ListedLock | null> => {
    const record = await inspect(servers, key, limitsUntil(endsAtMs, timeouts));
    return record && { key, ...record };
  };
  const target: ScanTarget = {
    serverNames() {
      const names = servers.all.filter((server) => server.hasVote).map(({ name }) => name);
      if (names.length < servers.needed) throw servers.noMajorityResult(timeouts.serverLimitMs).cause;
      return names.slice(0, servers.maxFailures + 1);
    },
    clientOf: (name) => ({ scan: (...options) => runOn(name, (client) => client.scan(...options)) }),
    patternOf: (prefix) => votePatternOf(prefix, keyPrefix),
    keyOf: (redisKey) => keyOfVoteKey(redisKey, keyPrefix),
    async readHeld(keys, scannedLater) {
      const readVotes = (name: string) => runOn(name, (client) => client.mget(keys.map(voteKeyOf)));
      const laterVotes = await Promise.all(scannedLater.map(readVotes));
      // A vote stays as long as the lock is held, so the key will be found there.
      const lastFound = keys.filter((_, index) => laterVotes.every((votes) => votes[index] === null));
      const locks = await Promise.all(lastFound.map(inspectKey));
      return locks.filter((lock) => lock !== null);
    },
  };
  return listByScan(request, target, timeouts.timeoutMs);
}
