/** A fault put into our own code. If no spec notices it, the specs prove less than they say. */
export interface Mutant {
  readonly title: string;
  readonly file: string;
  readonly find: string;
  readonly replace: string;
  /** The specs that must notice. */
  readonly specs: readonly string[];
}

const LUA = 'lib/backends/redis/script.ts';
const POSTGRES = 'lib/backends/typeorm/postgres-statements.ts';
const UPSERT = 'lib/backends/typeorm/postgres-upsert.ts';
const MEMORY = 'lib/backends/memory/memory-backend.ts';

export const mutants: readonly Mutant[] = [
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
    find: "if redis.call('HGET', grant, 'holder') ~= holder then return {'gone'} end",
    replace: "if redis.call('EXISTS', grant) == 0 then return {'gone'} end",
    specs: ['test/conformance/redis'],
  },
  {
    title: 'release does not look who holds the key (postgres)',
    file: POSTGRES,
    find: "freeOne('l.holder = $2::text')",
    replace: "freeOne('$2::text IS NOT NULL')",
    specs: ['test/conformance/postgres'],
  },
  {
    title: 'renewal brings a lost lock back (Redis)',
    file: LUA,
    find: "if redis.call('HGET', grant, 'holder') ~= holder then return {'lost'} end",
    replace: `local present = redis.call('HGET', grant, 'holder')
  if present and present ~= holder then return {'lost'} end
  if not present then redis.call('HSET', grant, 'holder', holder, 'token', '1', 'instance', '', 'since', '1') end`,
    specs: ['test/conformance/redis'],
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
    find: "if redis.call('PTTL', grant) < tonumber(leaseMs) then redis.call('PEXPIRE', grant, leaseMs) end",
    replace: "redis.call('PEXPIRE', grant, leaseMs)",
    specs: ['test/conformance/redis'],
  },
  {
    title: 'the fencing token is a plain counter (Redis)',
    file: LUA,
    find: "math.max(tonumber(known[1] or '0') + 1, nowUs)",
    replace: "tonumber(known[1] or '0') + 1",
    specs: ['test/conformance/redis'],
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
    find: 'if present[1] == holder then',
    replace: 'if false then',
    specs: ['test/conformance/redis'],
  },
  {
    title: 'a claimed tick may be claimed again (Redis)',
    file: LUA,
    find: 'tonumber(tickMs) <= tonumber(known[2])',
    replace: 'tonumber(tickMs) < tonumber(known[2])',
    specs: ['test/conformance/redis'],
  },
  {
    title: 'validity counts from the answer',
    file: 'lib/core/grants.ts',
    find: 'return { answer, grant: { key, claim, leaseMs, sentAt, lastsUntilMs } };',
    replace: 'return { answer, grant: { key, claim, leaseMs, sentAt: momentOf(clock), lastsUntilMs } };',
    specs: ['test/unit/core'],
  },
  {
    title: 'validity of a renewal counts from the answer',
    file: 'lib/core/holdings.ts',
    find: 'lease.heard(answer, renewal);',
    replace: 'lease.heard(answer, { ...renewal, sentAt: momentOf(this.clock) });',
    specs: ['test/unit/core'],
  },
  {
    title: 'nothing is withdrawn after an unknown outcome',
    file: 'lib/core/grants.ts',
    find: 'if (mayHaveLanded) void giveBack.abandon(grant.claim, grant.lastsUntilMs);',
    replace: 'void giveBack;',
    specs: ['test/unit/core'],
  },
  {
    title: 'a withdrawal that found nothing is not repeated',
    file: 'lib/core/give-back.ts',
    find: "if (answer.kind !== 'released') {",
    replace: "if (answer.kind === 'unknown') {",
    specs: ['test/unit/core'],
  },
  {
    title: 'an answer is used however late it comes',
    file: 'lib/core/courier.ts',
    find: 'if (this.#clock.monotonicMs() - sentAtMs > limitMs) {',
    replace: 'if (limitMs < 0) {',
    specs: ['test/unit/core'],
  },
  {
    title: 'isValid() reads a flag, not the clock',
    file: 'lib/core/lease.ts',
    find: "if (this.#state === 'held' && this.#isOver()) this.lose(this.#lossAsError());",
    replace: '',
    specs: ['test/unit/core'],
  },
  {
    title: 'a lease is trusted after the machine slept',
    file: 'lib/core/lease.ts',
    find: "return this.#state === 'held' && this.#clocksAgree();",
    replace: "return this.#state === 'held';",
    specs: ['test/unit/core'],
  },
  {
    title: 'a lock can be lost after its release',
    file: 'lib/core/lease.ts',
    find: "  lose(error: LockLostError): void {\n    if (this.#state !== 'held') return;",
    replace: '  lose(error: LockLostError): void {',
    specs: ['test/unit/core'],
  },
  {
    title: 'renewal ends with its first failure',
    file: 'lib/core/keeper.ts',
    find: 'this.#sleep(lease, lease.leaseMs * RETRY_AFTER * (0.5 + Math.random() / 2), failures + 1);',
    replace: '',
    specs: ['test/unit/core'],
  },
  {
    title: 'a failed release hides how the work ended',
    file: 'lib/core/holdings.ts',
    find: 'await lease[Symbol.asyncDispose]();',
    replace: 'await lease.release();',
    specs: ['test/unit/core'],
  },
  {
    title: 'locks of running work are given back at shutdown',
    file: 'lib/core/holdings.ts',
    find: 'return this.#letLapse();',
    replace:
      'await Promise.all([...this.#leases].map((lease) => lease.giveBack()));\n    return this.#letLapse();',
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
    file: 'lib/core/waiting-line.ts',
    find: 'askers.delete(asker);',
    replace: '',
    specs: ['test/unit/core'],
  },
  {
    title: 'who has left the line still listens to signals',
    file: 'lib/core/asker.ts',
    find: "for (const signal of this.#signals) signal.removeEventListener('abort', this.#leave);",
    replace: '',
    specs: ['test/unit/core'],
  },
  {
    title: 'closing leaves the keeper running',
    file: 'lib/core/holdings.ts',
    find: 'for (const lease of this.#letLapse()) {',
    replace: 'for (const lease of this.#leases) {',
    specs: ['test/unit/core'],
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
    file: 'lib/core/lease.ts',
    find: 'this.#confirmedAt = sentAt;\n    this.#validUntilMs',
    replace:
      'this.#confirmedAt = { monotonicMs: desk.clock.monotonicMs(), wallMs: desk.clock.wallMs() };\n    this.#validUntilMs',
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
    find: 'if (tick && mayHaveLanded && !isSilence(answer)) {',
    replace: 'if (tick && mayHaveLanded && isSilence(answer)) {',
    specs: ['test/unit/core'],
  },
  {
    title: 'the backend is asked after close',
    file: 'lib/core/courier.ts',
    find: "if (this.#isClosed) return unknown(new LockShutdownError('The application has ended.'));",
    replace: '',
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
];
