import type { Fault } from '../../mutants/fault-list.js';
import type { Checker } from './findings.js';

/** A fault in our own code that a checker must see. If none does, chaos proves less than it says. */
export interface Control extends Fault {
  readonly backend: 'redis' | 'postgres' | 'mariadb' | 'better-sqlite3' | 'redlock';
  /** What is injected meanwhile: each nemesis with one of these texts in its name. */
  readonly nemeses: readonly string[];
  /** @default 4 */
  readonly rounds?: number;
  /**
   * The largest number of episodes, each with the next seed: some faults show only at the end of an episode.
   *
   * @default 1
   */
  readonly episodes?: number;
  /** One of these must be red. */
  readonly seenBy: readonly Checker[];
}

const UNCONTENDED_PATHS = 'lib/backends/redis/single/uncontended-paths.ts';
const LOCK_VERBS = 'lib/backends/redis/single/lock-verbs.ts';
const POSTGRES = 'lib/backends/typeorm/dialects/postgres/postgres-sql.ts';
const SQLITE = 'lib/backends/typeorm/dialects/sqlite/sqlite-sql.ts';

export const controls: readonly Control[] = [
  {
    title: 'a key that is taken is granted (Redis)',
    backend: 'redis',
    nemeses: ['sessions killed'],
    file: LOCK_VERBS,
    find: `    if isHeld(lock) then
      if mayWait then`,
    replace: `    if false then
      if mayWait then`,
    seenBy: ['disjoint intervals', 'fenced mutex'],
  },
  {
    title: 'a waiter is granted a key that is taken (postgres)',
    backend: 'postgres',
    nemeses: ['sessions killed'],
    file: POSTGRES,
    find: `const isHeld = 'l.expires_at > excluded.acquired_at';`,
    replace: `const isHeld = 'false';`,
    seenBy: ['disjoint intervals', 'fenced mutex'],
  },
  {
    title: 'a key that is taken is granted (MariaDB)',
    backend: 'mariadb',
    nemeses: ['sessions killed'],
    file: 'lib/backends/typeorm/dialects/mysql/mysql-sql.ts',
    find: `  holder = IF(expires_at > \${NOW}, holder,
    IF(VALUES(version) > 0, VALUES(holder), NULL)),`,
    replace: `  holder = IF(VALUES(version) > 0, VALUES(holder), NULL),`,
    seenBy: ['disjoint intervals', 'fenced set', 'fenced mutex'],
  },
  {
    title: 'a key that is taken is granted by each server (quorum)',
    backend: 'redlock',
    nemeses: ['sessions killed'],
    file: 'lib/backends/redis/quorum/vote-verbs.ts',
    find: `if isHeld(lock) then return taken(key, lock, params) end`,
    replace: ``,
    seenBy: ['disjoint intervals', 'fenced mutex'],
  },
  {
    title: 'a release does not check who holds the key (Redis)',
    backend: 'redis',
    nemeses: ['process stopped', 'event loop blocked'],
    file: LOCK_VERBS,
    find: `    if isOf(lock, holder) then
      freeOrReserve(k, lock)`,
    replace: `    if isHeld(lock) then
      freeOrReserve(k, lock)`,
    seenBy: ['disjoint intervals', 'fenced mutex'],
  },
  {
    title: 'a release does not check who holds the key (postgres)',
    backend: 'postgres',
    nemeses: ['replies dropped', 'cut before the reply', 'one way: requests held'],
    file: POSTGRES,
    find: "releaseOneWhere('l.holder = :holder::text')",
    replace: "releaseOneWhere(':holder::text IS NOT NULL')",
    seenBy: ['disjoint intervals', 'fenced mutex'],
  },
  {
    title: 'a release does not check who holds the key (better-sqlite3)',
    backend: 'better-sqlite3',
    nemeses: ['process stopped', 'store stalled'],
    file: SQLITE,
    find: 'release: `UPDATE :table SET ${SET_RELEASED} WHERE ${IS_OURS} AND',
    replace: 'release: `UPDATE :table SET ${SET_RELEASED} WHERE key = :key AND',
    seenBy: ['disjoint intervals', 'fenced mutex'],
  },
  {
    title: 'a renewal accepts the lock of another holder (Redis)',
    backend: 'redis',
    nemeses: ['store forgets all locks'],
    rounds: 60,
    file: LOCK_VERBS,
    find: `    if not isGrantedTo(lock, holder) then return 'lost' end`,
    replace: `    if not lock then return 'lost' end`,
    seenBy: ['disjoint intervals'],
  },
  {
    title: 'the lease in the store is half as long as promised (Redis)',
    backend: 'redis',
    nemeses: ['process stopped'],
    file: UNCONTENDED_PATHS,
    find: `after(leaseMs * 1000) .. ' '`,
    replace: `after(leaseMs * 500) .. ' '`,
    seenBy: ['disjoint intervals', 'fenced mutex'],
  },
  {
    title: 'validity counts from the reply',
    backend: 'postgres',
    nemeses: ['delayed'],
    rounds: 40,
    file: 'lib/core/leases/acquirer.ts',
    find: `return new Grant({ key, request, granted: result, sentAt, latestStoreEndMs }, clock);`,
    replace: `const now = { monotonicMs: clock.monotonicMs(), wallMs: clock.wallMs() };
    return new Grant({ key, request, granted: result, sentAt: now, latestStoreEndMs }, clock);`,
    seenBy: ['disjoint intervals', 'fenced mutex'],
  },
  {
    title: 'isValid() reads a flag, not the clock',
    backend: 'redis',
    nemeses: ['process stopped', 'event loop blocked'],
    file: 'lib/core/leases/held-lock.ts',
    find: 'if (this.isHeld && this.grant.isOver)',
    replace: 'if (false)',
    seenBy: ['disjoint intervals'],
  },
  {
    title: 'nothing is withdrawn after an unknown outcome',
    backend: 'redis',
    nemeses: ['cut before the reply', 'replies dropped'],
    rounds: 60,
    file: 'lib/core/leases/acquirer.ts',
    find: 'if (mayStillTakeEffect(result)) this.#withdraw(params, sentAt);',
    replace: ``,
    seenBy: ['orphans', 'liveness'],
  },
  {
    title: 'a release without a reply is not sent again',
    backend: 'postgres',
    nemeses: ['cut in the request', 'requests dropped', 'connections reset'],
    rounds: 60,
    file: 'lib/core/leases/releaser.ts',
    find: 'if (!isDone(result, sentAt) && !this.#isStopped) this.#retry(release);',
    replace: 'if (!isDone(result) && this.#isStopped) this.#retry(release);',
    seenBy: ['orphans', 'liveness'],
  },
  {
    title: 'the fencing token begins again (Redis)',
    backend: 'redis',
    nemeses: ['store forgets all locks'],
    file: 'lib/backends/redis/single/request-sender.ts',
    find: `fencingToken: BigInt(timeUs) }`,
    replace: `fencingToken: BigInt(timeUs) % 1_000_000n }`,
    seenBy: ['tokens grow', 'fenced register', 'fenced set', 'fenced mutex'],
  },
  {
    title: 'callers of one process that have a lock in turn share a fencing token',
    backend: 'redis',
    nemeses: ['process stopped'],
    file: 'lib/core/leases/grant.ts',
    find: `    this.#nextToken += 1n;`,
    replace: ``,
    seenBy: ['tokens grow', 'fenced register', 'fenced mutex'],
  },
  {
    title: 'a waiter that will be notified never tries by itself',
    backend: 'redis',
    nemeses: ['process killed'],
    rounds: 12,
    file: 'lib/core/waiting/open-acquisition.ts',
    find: '  return result.remainingMs > 0',
    replace: '  return result.willBeNotified ? 1e9 : result.remainingMs > 0',
    seenBy: ['liveness'],
  },
  {
    title: 'the last waiter that gives up keeps its place in the queue of the store (Redis)',
    backend: 'redis',
    nemeses: ['application closed'],
    rounds: 1,
    episodes: 30,
    file: 'lib/core/waiting/open-acquisition.ts',
    find: '!this.#isQueuedInStore || this.#holder === undefined',
    replace: `this.#tries > 0`,
    seenBy: ['orphans'],
  },
  {
    title: 'the failure to open a connection is not handled',
    backend: 'postgres',
    nemeses: ['connections reset', 'store restarted'],
    file: 'lib/backends/typeorm/connections/connection-factory.ts',
    find: 'connecting.then((connection) => connection.destroy()).catch(() => undefined);',
    replace: 'void connecting.then((connection) => connection.destroy());',
    seenBy: ['no crash'],
  },
  {
    title: 'the connection for notifications stays open at the end (Redis)',
    backend: 'redis',
    nemeses: ['delayed'],
    file: 'lib/backends/redis/notifications.ts',
    find: `    this.#client?.disconnect();
    this.#client = undefined;`,
    replace: `    this.#client = undefined;`,
    seenBy: ['orphans'],
  },
];
