/** A fault put into our own code. If no spec notices it, the specs prove less than they say. */
export interface Mutant {
  readonly title: string;
  readonly file: string;
  readonly find: string;
  readonly replace: string;
  /** The specs that must notice. */
  readonly specs: readonly string[];
}

const TERM = 'lib/election/term.ts';
const CANDIDACY = 'lib/election/candidacy.ts';
const LUA = 'lib/backends/redis/lua.ts';
const POSTGRES = 'lib/backends/typeorm/postgres-statements.ts';
const CARRIER = 'lib/backends/typeorm/carrier.ts';
const MYSQL = 'lib/backends/typeorm/mysql-statements.ts';
const UPSERT = 'lib/backends/typeorm/postgres-upsert.ts';
const NODE = 'lib/backends/redis/quorum/node-lua.ts';
const SPREAD = 'lib/backends/redis/quorum/spread.ts';
const VOTER = 'lib/backends/redis/quorum/voter.ts';
const TRUST = 'lib/backends/redis/quorum/trust.ts';
const VOTES = 'lib/backends/redis/quorum/votes.ts';
const VOTERS = 'lib/backends/redis/quorum/voters.ts';
const MEMORY = 'lib/backends/memory/memory-backend.ts';
const FENCED_UPDATE = 'lib/backends/typeorm/resource/fenced-update.ts';
const FENCED_SET = 'lib/backends/redis/resource/fenced-set.ts';

export const mutants: readonly Mutant[] = [
  {
    title: 'the work of a run or a term releases its lock',
    file: 'lib/core/chain.ts',
    find: "const lock = lease.purpose === 'lock' ? lease : new LentLock(lease);",
    replace: 'const lock = lease;',
    specs: ['test/nest/lent-locks'],
  },
  {
    title: 'what joined a lock is not stopped when the outer work ends',
    file: 'lib/core/lease.ts',
    find: '    if (this.#joiners) for (const joiner of this.#joiners) joiner.onOuterReleased();\n',
    replace: '',
    specs: ['test/unit/core/waiting'],
  },
  {
    title: 'a leader does not look at the clock',
    file: TERM,
    find: 'return this.#parts.lease.isValid() && !this.shown.signal.aborted;',
    replace: 'return this.#parts.lease.isHeld && !this.#isGivenUp;',
    specs: ['test/unit/election'],
  },
  {
    title: 'a term is given back while its work runs',
    file: TERM,
    find: 'while (this.#running.size > 0) await Promise.allSettled(this.#running.keys());',
    replace: 'await Promise.resolve();',
    specs: ['test/unit/election', 'test/nest/election'],
  },
  {
    title: 'the lease of a leader that does not end is renewed for ever',
    file: TERM,
    find: '    locks.letLapse(lease);\n',
    replace: '',
    specs: ['test/unit/election'],
  },
  {
    title: 'who has led stands in line again at once',
    file: CANDIDACY,
    find: 'const stayBackMs = () => 500 + Math.random() * 500;',
    replace: 'const stayBackMs = () => 0;',
    specs: ['test/unit/election'],
  },
  {
    title: 'who is elected in the moment of leaving leads',
    file: CANDIDACY,
    find: `    if (this.hasLeft) {
      await lease[Symbol.asyncDispose]();
      return;
    }
`,
    replace: '',
    specs: ['test/unit/election'],
  },
  {
    title: 'release does not look who holds the key (memory)',
    file: MEMORY,
    find: "if (this.#heldEntry(key)?.holder !== holder) return { kind: 'gone' };",
    replace: "if (!this.#heldEntry(key)) return { kind: 'gone' };",
    specs: ['test/conformance/memory'],
  },
  {
    title: 'release does not look who holds the key (Redis)',
    file: LUA,
    find: `    if isOf(lock, holder) then
      handOver(k, lock)`,
    replace: `    if isHeld(lock) then
      handOver(k, lock)`,
    specs: ['test/conformance/redis.spec'],
  },
  {
    title: 'release does not look who holds the key (postgres)',
    file: POSTGRES,
    find: "freeOne('l.holder = $2::text')",
    replace: "freeOne('$2::text IS NOT NULL')",
    specs: ['test/conformance/postgres'],
  },
  {
    title: 'release does not look who holds the key (MariaDB)',
    file: MYSQL,
    find: "const claimOne = '`key` = ? AND holder = ?';",
    replace: "const claimOne = '`key` = ? AND (holder = ? OR TRUE)';",
    specs: ['test/conformance/mariadb'],
  },
  {
    title: 'a lock is granted after its asker gave up (Redis)',
    file: LUA,
    find: 'local isTooLate = notAfterUs > 0 and nowUs > notAfterUs',
    replace: 'local isTooLate = false',
    specs: ['test/cluster/late-request'],
  },
  {
    title: 'a lock is granted after its asker gave up (postgres)',
    file: POSTGRES,
    find: 'WHERE c.now <= $6::bigint AND NOT EXISTS',
    replace: 'WHERE $6::bigint IS NOT NULL AND NOT EXISTS',
    specs: ['test/cluster/late-request'],
  },
  {
    title: 'locks are granted together after their asker gave up (postgres)',
    file: POSTGRES,
    find: 'ELSE c.now <= a.latest END AS may',
    replace: 'ELSE TRUE END AS may',
    specs: ['test/cluster/late-request'],
  },
  {
    title: 'a process that is granted all it asks for never hears the time (MariaDB)',
    file: CARRIER,
    find: 'await this.#askTheTime(visit, trip.untimedKey);',
    replace: ';',
    specs: ['test/cluster/late-request'],
  },
  {
    title: 'a trip fails if the time is not told after it (MariaDB)',
    file: CARRIER,
    find: `this.#clock.learn(nowUs, askedAtMs),
      () => undefined,`,
    replace: `this.#clock.learn(nowUs, askedAtMs),`,
    specs: ['test/unit/backends/typeorm/carrier'],
  },
  {
    title: 'the end of a run is told with the releases of its trip',
    file: CARRIER,
    find: 'this.#release(visit, claims), isEnd)',
    replace: 'this.#release(visit, claims))',
    specs: ['test/unit/backends/typeorm/carrier'],
  },
  {
    title: 'a connection that falls silent while it is opened stands in the way of all others (MariaDB)',
    file: 'lib/backends/typeorm/own-connections.ts',
    find: 'if (await atMost(systemClock, CLOSE_LIMIT_MS, closed)) return;',
    replace: 'await closed;',
    specs: ['test/conformance/sql-links'],
  },
  {
    title: 'a release is sent again if nobody says what it freed (MariaDB)',
    file: MYSQL,
    find: 'return claims.map(() => unknown(cause));',
    replace: 'throw cause;',
    specs: ['test/unit/backends/typeorm/mysql-statements'],
  },
  {
    title: 'renewal brings a lost lock back (Redis)',
    file: LUA,
    find: `    if not isGrantedTo(lock, holder) then return 'lost' end`,
    replace: `    if not lock then return 'lost' end`,
    specs: ['test/conformance/redis.spec'],
  },
  {
    title: 'renewal brings a lapsed lease back (postgres)',
    file: POSTGRES,
    find: 'AND s.expires_at > c.now ORDER BY s.key\nON CONFLICT (key) DO UPDATE SET ${set}\nWHERE l.holder = excluded.holder AND l.expires_at > excluded.acquired_at',
    replace: 'ORDER BY s.key\nON CONFLICT (key) DO UPDATE SET ${set}\nWHERE l.holder = excluded.holder',
    specs: ['test/conformance/postgres'],
  },
  {
    title: 'renewal shortens an extended lease (Redis)',
    file: LUA,
    find: `    if not isLonger then prolong(k, lock, terms) end`,
    replace: `    prolong(k, lock, terms)`,
    specs: ['test/conformance/redis.spec'],
  },
  {
    title: 'a process keeps the key although others wait (Redis)',
    file: LUA,
    find: `if terms.moreTokens and not hasLine(lock) then`,
    replace: `if terms.moreTokens then`,
    specs: ['test/conformance/redis-line'],
  },
  {
    title: 'the fencing token is a plain counter (Redis)',
    file: LUA,
    find: `local answers, left = {now}, nil`,
    replace: `local answers, left = {wide(1)}, nil`,
    specs: ['test/conformance/redis.spec'],
  },
  {
    title: 'the fencing token is a plain counter (SQL)',
    file: POSTGRES,
    find: 'SELECT $1::text, $2::text, $3::text, c.now, $5::bigint',
    replace: 'SELECT $1::text, $2::text, $3::text, 1, $5::bigint',
    specs: ['test/conformance/postgres'],
  },
  {
    title: 'the fencing token stays when the row is granted anew (SQL)',
    file: UPSERT,
    find: 'THEN l.version + l.token_count ELSE excluded.version END',
    replace: 'THEN l.version ELSE l.version END',
    specs: ['test/conformance/postgres'],
  },
  {
    title: 'an acquisition sent again is refused (Redis)',
    file: LUA,
    find: `    if isGrantedTo(lock, holder) then
      if`,
    replace: `    if false then
      if`,
    specs: ['test/conformance/redis.spec'],
  },
  {
    title: 'an acquisition sent again shortens the lease (Redis)',
    file: LUA,
    find: `      if remainingMs(lock) < terms.leaseMs then prolong(k, lock, terms) else touch(k, lock) end`,
    replace: `      prolong(k, lock, terms)`,
    specs: ['test/conformance/redis.spec'],
  },
  {
    title: 'a claimed tick may be claimed again (Redis)',
    file: LUA,
    find: `terms.tickMs <= newest`,
    replace: `terms.tickMs < newest`,
    specs: ['test/conformance/redis.spec'],
  },
  {
    title: 'a grant counts that no replica has (Redis)',
    file: 'lib/backends/redis/replicas.ts',
    find: `    return doubt ? told.map((answer) => (mustLast(answer) ? doubt : answer)) : told;`,
    replace: `    return told;`,
    specs: ['test/conformance/redis-replicas'],
  },
  {
    title: 'replicas are not asked about a script that was sent as text (Redis)',
    file: 'lib/backends/redis/replicas.ts',
    find: `    return this.#sent(this.#server.eval(...args));`,
    replace: `    return this.#server.eval(...args);`,
    specs: ['test/conformance/redis-replicas'],
  },
  {
    title: 'a slot half way between two nodes is asked for three keys only (Redis Cluster)',
    file: 'lib/backends/redis/redis-backend.ts',
    find: `this.#isCluster && told.some(isSplit)`,
    replace: `false`,
    specs: ['test/conformance/redis-cluster'],
  },
  {
    title: 'validity counts from the answer',
    file: 'lib/core/grants.ts',
    find: `return new Grant({ key, request, fencingToken, sentAt, lastsUntilMs }, this.#parts.clock);`,
    replace: `const { clock } = this.#parts;
    const now = { monotonicMs: clock.monotonicMs(), wallMs: sentAt.wallMs };
    return new Grant({ key, request, fencingToken, sentAt: now, lastsUntilMs }, clock);`,
    specs: ['test/unit/core'],
  },
  {
    title: 'validity of a renewal counts from the answer',
    file: 'lib/core/holdings.ts',
    find: `grant.confirmed({ sentAt, leaseMs })`,
    replace: `grant.confirmed({ sentAt: { ...sentAt, monotonicMs: this.#clock.monotonicMs() }, leaseMs })`,
    specs: ['test/unit/core'],
  },
  {
    title: 'nothing is withdrawn after an unknown outcome',
    file: 'lib/core/grants.ts',
    find: `if (mayStillLand(answer)) this.#withdraw(question, sentAt);`,
    replace: ``,
    specs: ['test/unit/core'],
  },
  {
    title: 'a withdrawal that found nothing is not repeated',
    file: 'lib/core/give-back.ts',
    find: `const isFound = (answer: ReleaseAnswer) => answer.kind === 'released';`,
    replace: `const isFound = (answer: ReleaseAnswer) => answer.kind !== 'unknown';`,
    specs: ['test/unit/core'],
  },
  {
    title: 'an answer is used however late it comes',
    file: 'lib/core/batch.ts',
    find: `if (tookMs <= errand.limitMs && !this.#givenUp?.has(errand)) {`,
    replace: `if (tookMs >= 0) {`,
    specs: ['test/unit/core'],
  },
  {
    title: 'isValid() reads a flag, not the clock',
    file: 'lib/core/lease.ts',
    find: `if (this.#state === 'held' && this.grant.isOver) this.#lose(this.#lossAsError());`,
    replace: ``,
    specs: ['test/unit/core'],
  },
  {
    title: 'a lease is trusted after the machine slept',
    file: 'lib/core/lease.ts',
    find: `if (this.grant.doClocksAgree) return true;`,
    replace: `return true;`,
    specs: ['test/unit/core'],
  },
  {
    title: 'a lock can be lost after its release',
    file: 'lib/core/lease.ts',
    find: `  #lose(error: LockLostError): void {
    if (this.#state !== 'held') return;`,
    replace: `  #lose(error: LockLostError): void {`,
    specs: ['test/unit/core'],
  },
  {
    title: 'a lost lock stays in the store for as long as its last renewal made it last',
    file: 'lib/core/lease.ts',
    find: `    this.#desk.forgo(this);`,
    replace: ``,
    specs: ['test/unit/core'],
  },
  {
    title: 'the lease of a lost run does not lapse',
    file: 'lib/core/holdings.ts',
    find: `this.#isClosed || grant.isRun || grant.lastsForMs <= 0`,
    replace: `this.#isClosed || grant.lastsForMs <= 0`,
    specs: ['test/unit/core'],
  },
  {
    title: 'renewal ends with its first failure',
    file: 'lib/core/keeper.ts',
    find: `watch.renewAtMs = clock.monotonicMs() + grant.leaseMs * RETRY_AFTER * (0.5 + Math.random() / 2);`,
    replace: ``,
    specs: ['test/unit/core'],
  },
  {
    title: 'a failed release hides how the work ended',
    file: 'lib/core/holdings.ts',
    find: `if (lease.isHeld) lease.giveBack(ignore);`,
    replace: `if (lease.isHeld) await lease.release();`,
    specs: ['test/unit/core'],
  },
  {
    title: 'locks of running work are given back at shutdown',
    file: 'lib/core/holdings.ts',
    find: 'return this.#dropAll();',
    replace:
      'for (const grant of this.#keeper.grants) this.#giveBack.release(grant.claim, grant.lastsUntilMs);\n    return this.#dropAll();',
    specs: ['test/nest/shutdown'],
  },
  {
    title: 'the claimed tick is the time at which the timer fired',
    file: 'lib/schedule/job-runner.ts',
    find: 'const tick = tracker.fired(this.#locks.clock.wallMs());',
    replace: 'const tick = { tickMs: this.#locks.clock.wallMs(), periodMs: 1_000, ...(tracker && {}) };',
    specs: ['test/nest/singleton-cron', 'test/cluster/cron-under-skew'],
  },
  {
    title: 'who has left the line is still counted',
    file: 'lib/core/line.ts',
    find: `    asker.inLine?.leave();
    asker.refused`,
    replace: `    asker.refused`,
    specs: ['test/unit/core'],
  },
  {
    title: 'who has left the line still listens to signals',
    file: 'lib/core/asker.ts',
    find: `if (this.#onAbort) this.wish.signal?.removeEventListener('abort', this.#onAbort);`,
    replace: ``,
    specs: ['test/unit/core'],
  },
  {
    title: 'closing leaves the keeper running',
    file: 'lib/core/holdings.ts',
    find: `for (const grant of left) this.#keeper.drop(grant);`,
    replace: ``,
    specs: ['test/unit/core'],
  },
  {
    title: 'a release on MariaDB tells of others though nobody waits',
    file: 'lib/backends/typeorm/mysql-statements.ts',
    find: 'LAST_INSERT_ID(IF(waiting_until > 0, 1, 0))',
    replace: 'LAST_INSERT_ID(1)',
    specs: ['test/conformance/sql-together'],
  },
  {
    title: 'a tick is granted though its row has changed since it was read',
    file: POSTGRES,
    find: ' AND l.version = $9::bigint AND l.expires_at = $10::bigint\n  AND l.tick IS NOT DISTINCT FROM $11::bigint AND coalesce(l.attempt, 0) = $12::bigint',
    replace: ' AND coalesce($9::bigint, $10::bigint, $11::bigint, $12::bigint, 0) >= 0',
    specs: ['test/conformance/postgres'],
  },
  {
    title: 'the end of a run is not noted',
    file: POSTGRES,
    find: 'SET ${free}, attempt = 0',
    replace: 'SET ${free}',
    specs: ['test/conformance/postgres'],
  },
  {
    title: 'a newer tick buries a dead run that is to be retried',
    file: 'lib/core/tick-verdict.ts',
    find: 'if (isUnfinished && !isHeld && diedLately && isAnother)',
    replace: 'if (false)',
    specs: ['test/conformance/memory'],
  },
  {
    title: 'a run that the shutdown interrupted counts as ended',
    file: 'lib/schedule/job-runner.ts',
    find: 'lease.grant.hasEnded = !isInterrupted;',
    replace: 'lease.grant.hasEnded = true;',
    specs: ['test/unit/schedule'],
  },
  {
    title: 'a connection that the server has killed is used again',
    file: 'lib/backends/typeorm/link.ts',
    find: 'return !this.#isOpen || isCut || this.#dialect.isBroken?.(connection) === true;',
    replace: 'return !this.#isOpen;',
    specs: ['test/conformance/sql-links'],
  },
  {
    title: 'a grant waits for the disk only where the server is set so (PostgreSQL)',
    file: POSTGRES,
    find: "const DURABLE = `set_config('synchronous_commit', 'on', true)`;",
    replace: "const DURABLE = `'on'::text`;",
    specs: ['test/conformance/postgres-crash'],
  },
  {
    title: 'a busy COMMIT keeps its lock until the next turn (SQLite)',
    file: 'lib/backends/typeorm/sqlite-transaction.ts',
    find: '      rollBack(run);\n',
    replace: '      setTimeout(() => rollBack(run), 10);\n',
    specs: ['test/conformance/sqlite'],
  },
  {
    title: 'a read on SQLite is no transaction',
    file: 'lib/backends/typeorm/sqlite-statements.ts',
    find: 'look: (visit, key) => inTransaction(visit, () => seenFrom(now(visit), rowOf(visit, key))),',
    replace: 'look: async (visit, key) => seenFrom(now(visit), rowOf(visit, key)),',
    specs: ['test/conformance/sqlite'],
  },
  {
    title: 'nobody hears the errors of a new connection',
    file: 'lib/backends/typeorm/postgres.ts',
    find: '        verify: hearErrorsAnd(verify),\n',
    replace: '',
    specs: ['test/conformance/sql-links'],
  },
  {
    title: 'a connection that was given up goes back into the pool',
    file: 'lib/backends/typeorm/link.ts',
    find: 'if (socket) socket.destroy();\n    else void',
    replace: 'socket?.destroy();\n    void',
    specs: ['test/cluster/sql-stall'],
  },
  {
    title: 'a lease is trusted if the answer came after the sleep',
    file: 'lib/core/grant.ts',
    find: `this.#confirmedAt = sentAt;
    this.#validUntilMs`,
    replace: `this.#confirmedAt = { monotonicMs: clock.monotonicMs(), wallMs: clock.wallMs() };
    this.#validUntilMs`,
    specs: ['test/unit/core'],
  },
  {
    title: 'a lock that was given back can be joined',
    file: 'lib/core/locks.ts',
    find: 'const isHeld = outer?.isHeld ?? false;',
    replace: 'const isHeld = outer !== undefined;',
    specs: ['test/unit/core'],
  },
  {
    title: 'a lost claim of a tick is not made again',
    file: 'lib/core/grants.ts',
    find: `isTooLate ? [first, firstSentAt] : await`,
    replace: `true ? [first, firstSentAt] : await`,
    specs: ['test/unit/core'],
  },
  {
    title: 'the backend is asked after close',
    file: 'lib/core/courier.ts',
    find: `if (this.#isClosed) throw new LockShutdownError('The application has ended.');`,
    replace: ``,
    specs: ['test/unit/core'],
  },
  {
    title: 'values in a key are not escaped',
    file: 'lib/decorators/key-template.ts',
    find: '(marks.has(char) ? percentEncode(char) : char)',
    replace: 'char',
    specs: ['test/unit/decorators'],
  },
  {
    title: 'metadata does not shine through',
    file: 'lib/decorators/replace-method.ts',
    find: 'Object.setPrototypeOf(replacement, original);',
    replace: '',
    specs: ['test/nest/metadata'],
  },
  {
    title: 'the fencing token stays when a lock passes on within the process',
    file: 'lib/core/grant.ts',
    find: `    this.#tokens.next += 1n;`,
    replace: ``,
    specs: ['test/unit/core'],
  },
  {
    title: 'a lock passes on within the process for ever',
    file: 'lib/core/tenure.ts',
    find: `    grant.tokensLeft > 0 &&
`,
    replace: ``,
    specs: ['test/unit/core'],
  },
  {
    title: 'a lock passes on within the process however long others wait',
    file: 'lib/core/tenure.ts',
    find: `    heldMs < LONGEST_TENURE_MS`,
    replace: `    heldMs < Infinity`,
    specs: ['test/unit/core'],
  },
  {
    title: 'a lock passes on with hardly any lease left',
    file: 'lib/core/tenure.ts',
    find: `    grant.remainingMs >= wish.leaseMs / 2 &&
`,
    replace: ``,
    specs: ['test/unit/core'],
  },
  {
    title: 'who leaves the line last keeps the place in the line of the store',
    file: 'lib/core/line.ts',
    find: `this.#hasPlace && this.#holder !== undefined`,
    replace: `false`,
    specs: ['test/unit/core'],
  },
  {
    title: 'a call for an open question outlives it when the key passes on from who asked once',
    file: 'lib/core/line.ts',
    find: `    this.#lastDoubt = undefined;
    this.#calledForMs = Infinity;
    grant.heirs = this;
    this.#lookAgainIn`,
    replace: `    this.#lastDoubt = undefined;
    grant.heirs = this;
    this.#lookAgainIn`,
    specs: ['test/simulation'],
  },
  {
    title: 'a line asks again in the name of a holder that is being given back',
    file: 'lib/core/line.ts',
    find: `      this.#holder = undefined;
      this.#hasPlace = false;
    }`,
    replace: `      this.#hasPlace = false;
    }`,
    specs: ['test/simulation'],
  },
  {
    title: 'who joins waits for the question of another however long it is open',
    file: 'lib/core/line.ts',
    find: `      if (!asksItself) asker.awaitWord(this.#parts.agenda, this);
`,
    replace: ``,
    specs: ['test/simulation'],
  },
  {
    title: 'nobody asks the store when the process has lost a grant',
    file: 'lib/core/holdings.ts',
    find: `    grant.heirs?.onEnded(grant);
`,
    replace: ``,
    specs: ['test/simulation'],
  },
  {
    title: 'shutdown ends before those who wait have left the line of the store',
    file: 'lib/core/locks.ts',
    find: `    await this.#sentAway;
`,
    replace: ``,
    specs: ['test/unit/core/line'],
  },
  {
    title: 'a request goes with those that were asked before it on the same key',
    file: 'lib/core/batch.ts',
    find: `return !this.#keys.has(request.key);`,
    replace: `return true;`,
    specs: ['test/unit/core'],
  },
  {
    title: 'withLock answers before its release is sent',
    file: 'lib/core/holdings.ts',
    find: `      await this.#courier.sent();
      return;`,
    replace: `      return;`,
    specs: ['test/unit/core'],
  },
  {
    title: 'who asks once is served before those who wait (Redis)',
    file: LUA,
    find: `    if head and head ~= holder then`,
    replace: `    if false then`,
    specs: ['test/conformance/redis'],
  },
  {
    title: 'who left the line is called (Redis)',
    file: LUA,
    find: `    if lock and hasLine(lock) then leave(k, holder) end`,
    replace: ``,
    specs: ['test/conformance/redis'],
  },
  {
    title: 'nobody looks after who was called and did not come (Redis)',
    file: LUA,
    find: `    if deputy then pcall('PUBLISH'`,
    replace: `    if false then pcall('PUBLISH'`,
    specs: ['test/conformance/redis'],
  },
  {
    title: 'a lock kept for the next in line counts as held (Redis)',
    file: LUA,
    find: `  local function isGrantedTo(lock, holder) return isOf(lock, holder) and tokenOf(lock) ~= never end`,
    replace: `  local function isGrantedTo(lock, holder) return isOf(lock, holder) end`,
    specs: ['test/conformance/redis'],
  },
  {
    title: 'a grant takes up one fencing token only (Redis)',
    file: LUA,
    find: `    terms.last = wide(nowUs + tokenCount - 1)`,
    replace: `    terms.last = wide(nowUs)`,
    specs: ['test/conformance/redis.spec'],
  },
  {
    title: 'a row is written whatever fencing token it has',
    file: FENCED_UPDATE,
    find: '${column} <= CAST(:token AS ${asNumber})',
    replace: 'CAST(:token AS ${asNumber}) >= 0',
    specs: ['test/resource/fenced-update'],
  },
  {
    title: 'who is fenced out hears that there is no such row',
    file: FENCED_UPDATE,
    find: 'if (newest !== undefined && newest > token) throw',
    replace: 'if (newest === 0n) throw',
    specs: ['test/resource/fenced-update'],
  },
  {
    title: 'several rows count as written though one has refused',
    file: FENCED_UPDATE,
    find: 'if (found > 0 && rows.isOne(where)) return true;',
    replace: 'if (found > 0) return true;',
    specs: ['test/resource/fenced-update'],
  },
  {
    title: 'a second look in a transaction sees what the first one saw (MySQL)',
    file: 'lib/backends/typeorm/resource/database.ts',
    find: 'isMysql(manager) && manager.queryRunner?.isTransactionActive',
    replace: 'isMysql(manager) && manager.queryRunner?.isReleased',
    specs: ['test/resource/fenced-update'],
  },
  {
    title: 'a name may end its own quotes in a fenced update',
    file: 'lib/backends/typeorm/resource/fenced-rows.ts',
    find: '/^[^"`?:\\0]+$/.test(name)',
    replace: '/^[^\\0]+$/.test(name)',
    specs: ['test/resource/fenced-update'],
  },
  {
    title: 'a schema may end its own quotes (postgres)',
    file: 'lib/backends/typeorm/table-name.ts',
    find: '.replaceAll(mark, mark + mark)',
    replace: '',
    specs: ['test/conformance/names'],
  },
  {
    title: 'a failed login shows its password (Redis)',
    file: 'lib/backends/redis/connection.ts',
    find: '  delete error.command;',
    replace: '  void error.command;',
    specs: ['test/conformance/secrets'],
  },
  {
    title: 'the version is not looked at when the row is written',
    file: 'lib/backends/typeorm/resource/optimistic-update.ts',
    find: '.andWhere(asRead.version)',
    replace: '',
    specs: ['test/resource/optimistic-update'],
  },
  {
    title: 'the fencing token replaces the object that it is a part of',
    file: 'lib/backends/typeorm/resource/fenced-rows.ts',
    find: 'merged(values, nested(column.propertyPath, token))',
    replace: '({ ...values, ...nested(column.propertyPath, token) })',
    specs: ['test/resource/embedded'],
  },
  {
    title: 'a row is claimed though it was claimed meanwhile',
    file: 'lib/backends/typeorm/resource/claim-row.ts',
    find: '.where(fresh(from))',
    replace: '.where(id)',
    specs: ['test/resource/claim-row'],
  },
  {
    title: 'a key is written whatever fencing token it has (Redis)',
    file: FENCED_SET,
    find: `if newest and (#newest`,
    replace: `if false and (#newest`,
    specs: ['test/resource/fenced-set'],
  },
  {
    title: 'fencing tokens are compared as numbers (Redis)',
    file: FENCED_SET,
    find: `#newest == #token and newest > token`,
    replace: `#newest == #token and tonumber(newest) > tonumber(token)`,
    specs: ['test/resource/fenced-set'],
  },
  {
    title: 'the fencing token goes with its value (Redis)',
    file: FENCED_SET,
    find: `'PX', tokenMs)`,
    replace: `'PX', valueMs)`,
    specs: ['test/resource/fenced-set'],
  },
  {
    title: 'a server counts tokens by itself instead of taking the ballot (quorum)',
    file: NODE,
    find: "    if lock and lock.last >= ballot then return 'behind ' .. lock.last end\n    grant",
    replace: '    grant',
    specs: ['test/conformance/redlock'],
  },
  {
    title: 'a server that may have forgotten has a vote (quorum)',
    file: TRUST,
    find: 'greeting.isPersistent ? 0 : Math.max(this.#quarantineMs - greeting.uptimeMs, 0)',
    replace: 'greeting.isPersistent ? 0 : Math.min(this.#quarantineMs - greeting.uptimeMs, 0)',
    specs: ['test/cluster/redlock'],
  },
  {
    title: 'another server behind the address of one has a vote (quorum)',
    file: TRUST,
    find: 'return isSame && known',
    replace: 'return known',
    specs: ['test/cluster/quorum-servers'],
  },
  {
    title: 'a server under two addresses answers one question twice (quorum)',
    file: VOTER,
    find: 'if (!twin || hadVote) heir.#aloneFromMs',
    replace: 'if (hadVote && !heir) heir.#aloneFromMs',
    specs: ['test/cluster/quorum-servers'],
  },
  {
    title: 'who was kept from everything gives up before it looks at what has arrived (quorum)',
    file: 'lib/backends/redis/quorum/round.ts',
    find: 'void setImmediate(callback)',
    replace: 'callback()',
    specs: ['test/cluster/redlock'],
  },
  {
    title: 'a server that reads its data is believed how long that takes (Redis)',
    file: 'lib/backends/redis/connection.ts',
    find: '  maxLoadingRetryTime: LONGEST_RECONNECT_PAUSE_MS,\n',
    replace: '',
    specs: ['test/cluster/redis-failover'],
  },
  {
    title: 'a question that is answered after the end opens a connection (Redis)',
    file: 'lib/backends/redis/calls.ts',
    find: ' || this.#isClosed',
    replace: '',
    specs: ['test/cluster/quorum-servers'],
  },
  {
    title: 'a vote that comes after the lock was given back stays (quorum)',
    file: 'lib/backends/redis/quorum/giving-back.ts',
    find: 'if (owing & voter.bit) voter.giveBackLater(again);',
    replace: 'if (owing & voter.bit) voter.giveBack(again);',
    specs: ['test/cluster/quorum-servers'],
  },
  {
    title: 'nobody knows who may yet vote for a lock (quorum)',
    file: VOTES,
    find: 'if (late !== 0)',
    replace: 'if (late < 0)',
    specs: ['test/cluster/quorum-servers'],
  },
  {
    title: 'a vote is given back before what asked for it has arrived (quorum)',
    file: VOTES,
    find: 'else this.#doubtful |= voter.bit;',
    replace: 'else this.#bits |= voter.bit;',
    specs: ['test/cluster/quorum-servers'],
  },
  {
    title: 'a server that does not answer keeps all locks from being rejoined (quorum)',
    file: 'lib/backends/redis/quorum/rejoin.ts',
    find: "told?.answers[index] ?? 'lost'",
    replace: 'told!.answers[index]!',
    specs: ['test/cluster/quorum-servers'],
  },
  {
    title: 'a lock that was given back is taken to servers that had lost it (quorum)',
    file: 'lib/backends/redis/quorum/rejoin.ts',
    find: ' || expected.isOver',
    replace: '',
    specs: ['test/cluster/quorum-servers'],
  },
  {
    title: 'who gives a lock back forgets the servers to which it is on its way (quorum)',
    file: 'lib/backends/redis/quorum/copies.ts',
    find: 'late.expect(holder, voter.bit)',
    replace: 'late.expect(holder, 0)',
    specs: ['test/cluster/quorum-servers'],
  },
  {
    title: 'votes that led to nothing are kept (quorum)',
    file: VOTES,
    find: 'if (this.#bits & voter.bit) this.#giveBack(voter);',
    replace: 'if (this.#bits & voter.bit) continue;',
    specs: ['test/cluster/redlock'],
  },
  {
    title: 'half of the votes are enough (quorum)',
    file: VOTERS,
    find: 'Math.floor(sources.length / 2) + 1;',
    replace: 'Math.ceil(sources.length / 2);',
    specs: ['test/cluster/redlock'],
  },
  {
    title: 'a vote that is asked for too late is given (quorum)',
    file: NODE,
    find: 'local isTimely = about < now and now <= sub(about, 18, 33)',
    replace: 'local isTimely = true',
    specs: ['test/cluster/redlock'],
  },
  {
    title: 'a lock of a bare majority stays with it (quorum)',
    file: SPREAD,
    find: 'if (nowMs < untilMsOf(lock)) due.push(lock);',
    replace: 'if (nowMs > untilMsOf(lock)) due.push(lock);',
    specs: ['test/cluster/redlock'],
  },
  {
    title: 'a lock that was given back is taken to the other servers (quorum)',
    file: SPREAD,
    find: '    this.#bare.delete(holder);\n',
    replace: '',
    specs: ['test/cluster/redlock'],
  },
  {
    title: 'a late give-back takes a vote that was given anew (quorum)',
    file: NODE,
    find: 'lock.first == question and lock.token <= largest',
    replace: 'lock.first == question',
    specs: ['test/conformance/redlock-server'],
  },
  {
    title: 'who joins in again forgets a tick (quorum)',
    file: NODE,
    find: 'if isOurs then new.tick',
    replace: 'if false then new.tick',
    specs: ['test/conformance/redlock-server'],
  },
  {
    title: 'the end of a run counts as noted where only the lock was freed (quorum)',
    file: NODE,
    find: "if isRunner then return 'noted'",
    replace: "if isHis then return 'noted'",
    specs: ['test/conformance/redlock-server'],
  },
  {
    title: 'what a server did not take back is forgotten (quorum)',
    file: 'lib/backends/redis/quorum/debts.ts',
    find: 'const debts = this.#take(this.#creditor.canBeAsked',
    replace:
      'if (!this.#creditor.canBeAsked) this.#owed.clear();\n    const debts = this.#take(this.#creditor.canBeAsked',
    specs: ['test/cluster/redlock'],
  },
];
