import type { Mutant } from './mutants.js';

const ACQUISITIONS = 'lib/backends/zookeeper/locks/acquisitions.ts';
const OWN_LOCKS = 'lib/backends/zookeeper/locks/own-entries.ts';
const SESSION = 'lib/backends/zookeeper/session/session.ts';
const SESSION_LEASE = 'lib/backends/zookeeper/session/session-lease.ts';
const TICK_CLAIMS = 'lib/backends/zookeeper/ticks/tick-claims.ts';
const LAWS = ['test/conformance/zookeeper'];
const OWN_LOCKS_SPEC = ['test/cluster/zookeeper-own-entries'];
const LATE_COMMIT_SPEC = ['test/cluster/zookeeper-late-commit'];
const SESSION_SPEC = ['test/cluster/zookeeper-session'];
const ENSEMBLE = 'test/services/zookeeper-ensemble.ts';
const ENSEMBLE_SPEC = ['test/services/zookeeper-ensemble'];
const SESSION_LEASE_SPEC = ['test/unit/backends/zookeeper/session-lease'];

export const zookeeperMutants: readonly Mutant[] = [
  {
    title: 'zookeeper: a place in the queue is granted whoever is before it',
    file: ACQUISITIONS,
    find: `if (index > 0)
      return mayWait(request)`,
    replace: 'if (index > 1) return mayWait(request)',
    specs: LAWS,
  },
  {
    title: 'zookeeper: a new entry is granted whoever is before it',
    file: ACQUISITIONS,
    find: 'if (entries[0]?.path === own.path) return',
    replace: 'if (entries.length > 0) return',
    specs: LAWS,
  },
  {
    title: 'zookeeper: a place in the queue looks like a lock',
    file: ACQUISITIONS,
    find: 'const value = valueOf(request, false);',
    replace: 'const value = valueOf(request, true);',
    specs: LAWS,
  },
  {
    title: 'zookeeper: a caller that does not wait keeps a place in the queue',
    file: ACQUISITIONS,
    find: 'const removed = unlessCode(session.send(remove(own.path)), CODE.noNode);',
    replace: 'const removed = unlessCode(session.send(exists(own.path)), CODE.noNode);',
    specs: OWN_LOCKS_SPEC,
  },
  {
    title: 'zookeeper: all waiters watch the holder',
    file: ACQUISITIONS,
    find: '- 1];',
    replace: '- 1] && entries[0];',
    specs: ['test/cluster/zookeeper-queue'],
  },
  {
    title: 'zookeeper: a place is deleted although its grant is on the way',
    file: OWN_LOCKS,
    find: 'if (this.#inFlight.has(name)) continue;',
    replace: '',
    specs: OWN_LOCKS_SPEC,
  },
  {
    title: 'zookeeper: a lock that was not renewed lasts as long as the session',
    file: OWN_LOCKS,
    find: 'if (!entry.session.isOver) this.#ending.set(name, entry);',
    replace: '',
    specs: LAWS,
  },
  {
    title: 'zookeeper: a grant whose reply was lost is never deleted',
    file: OWN_LOCKS,
    find: 'entries.filter((entry) => entry.holder === holder)',
    replace: 'entries.filter(() => false)',
    specs: OWN_LOCKS_SPEC,
  },
  {
    title: 'zookeeper: a request whose reply was lost is made twice',
    file: 'lib/backends/zookeeper/locks/entry-creation.ts',
    find: 'if (!first) return undefined;',
    replace: 'if (first) return undefined;',
    specs: OWN_LOCKS_SPEC,
  },
  {
    title: 'zookeeper: a late lock is looked for before its commit is known',
    file: 'lib/backends/zookeeper/locks/queue-reader.ts',
    find: 'const heartbeat = session.heartbeat();',
    replace: 'const heartbeat = Promise.resolve();',
    specs: LATE_COMMIT_SPEC,
  },
  {
    title: 'zookeeper: a request is settled as soon as there is another connection',
    file: 'lib/backends/zookeeper/session/settle.ts',
    find: 'await session.await(session.heartbeat(), deadline);',
    replace: '',
    specs: LATE_COMMIT_SPEC,
  },
  {
    title: 'zookeeper: a place that nobody claims stays for as long as its session',
    file: 'lib/core/requests/abandoned-places.ts',
    find: 'if (nowMs - known.sinceMs < MAX_TURN_MS) return;',
    replace: 'return;',
    specs: OWN_LOCKS_SPEC,
  },
  {
    title: 'zookeeper: a renewal does not look whether the lock is still there',
    file: 'lib/backends/zookeeper/locks/lock-extension.ts',
    find: 'if (!stat) {',
    replace: 'if (stat === null) {',
    specs: LAWS,
  },
  {
    title: 'zookeeper: a longer lease is not written',
    file: 'lib/backends/zookeeper/locks/lock-extension.ts',
    find: 'const isLonger = value.leaseMs > entry.value.leaseMs;',
    replace: 'const isLonger = value.leaseMs < entry.value.leaseMs;',
    specs: LAWS,
  },
  {
    title: 'zookeeper: a reply of one server confirms the session',
    file: SESSION_LEASE,
    find: 'if (isCommitted) this.#confirm',
    replace: 'this.#confirm',
    specs: SESSION_LEASE_SPEC,
  },
  {
    title: 'zookeeper: a write confirms the session for its timeout',
    file: SESSION_LEASE,
    find: 'this.#confirm(sentAt.monotonicMs - this.#tickMs);',
    replace: 'this.#confirm(Infinity);',
    specs: SESSION_LEASE_SPEC,
  },
  {
    title: 'zookeeper: what an earlier server knew confirms the session',
    file: SESSION_LEASE,
    find: 'this.#touches = [{ sentAt, answeredAtMs: -Infinity }];',
    replace: 'this.#touches.unshift({ sentAt, answeredAtMs: -Infinity });',
    specs: SESSION_LEASE_SPEC,
  },
  {
    title: 'zookeeper: a session counts after a sleep of the machine',
    file: SESSION_LEASE,
    find: 'if (!confirmedAt || !clocksAgree(confirmedAt, now)) return false;',
    replace: 'if (!confirmedAt) return false;',
    specs: SESSION_LEASE_SPEC,
  },
  {
    title: 'zookeeper: a lock outlives its session',
    file: SESSION,
    find: `    this.#isOver = true;
    this.#timer?.cancel();`,
    replace: '    this.#timer?.cancel();',
    specs: SESSION_SPEC,
  },
  {
    title: 'zookeeper: waiters do not ask again when their watches are gone',
    file: 'lib/backends/zookeeper/locks/predecessor-watches.ts',
    find: 'this.#publish({});',
    replace: '',
    specs: SESSION_SPEC,
  },
  {
    title: 'zookeeper: a pause without a reply is refused although it may still take effect',
    file: 'lib/backends/zookeeper/ticks/tick-states.ts',
    find: 'await settle(session, written);',
    replace: '',
    specs: SESSION_SPEC,
  },
  {
    title: 'zookeeper: a lock is granted in a session that was closed',
    file: SESSION,
    find: 'return !this.isEnded && this.#lease.lasts(ms);',
    replace: 'return !this.#isOver && this.#lease.lasts(ms);',
    specs: SESSION_SPEC,
  },
  {
    title: 'zookeeper: an acquisition with an entry is reported as never sent',
    file: ACQUISITIONS,
    find: 'return this.#settle(request, placed, deadline).catch(resultAfterCreation);',
    replace: 'return this.#settle(request, placed, deadline);',
    specs: SESSION_SPEC,
  },
  {
    title: 'zookeeper: a claim of a dead process keeps others waiting',
    file: TICK_CLAIMS,
    find: 'abandonedPlaces.onTurn(oldest);',
    replace: '',
    specs: ['test/cluster/zookeeper-ticks'],
  },
  {
    title: 'zookeeper: a pause takes effect after it was refused because of a close',
    file: 'lib/backends/zookeeper/session/settle.ts',
    find: '!session.isOver) {',
    replace: '!session.isEnded) {',
    specs: ['test/cluster/late-pause'],
  },
  {
    title: 'zookeeper: a claim with an entry is reported as never sent',
    file: TICK_CLAIMS,
    find: 'return settle().catch(resultAfterCreation);',
    replace: 'return settle();',
    specs: SESSION_SPEC,
  },
  {
    title: 'zookeeper: a silent server is not left',
    file: 'lib/backends/zookeeper/session/await-replies.ts',
    find: 'if (connection && !wasBusy',
    replace: 'if (connection && wasBusy',
    specs: SESSION_SPEC,
  },
  {
    title: 'zookeeper: a process that was busy blames its server',
    file: 'lib/backends/zookeeper/session/await-replies.ts',
    find: 'const wasBusy = waitedMs > timeoutMs + MAX_TIMER_DELAY_MS;',
    replace: 'const wasBusy = false;',
    specs: SESSION_SPEC,
  },
  {
    title: 'zookeeper: a tick is claimed although its record has changed',
    file: 'lib/backends/zookeeper/ticks/tick-snapshots.ts',
    find: 'if (version !== undefined) return setData(path, data, version);',
    replace: 'if (version !== undefined) return setData(path, data);',
    specs: LAWS,
  },
  {
    title: 'zookeeper: a claim is granted whoever is before it',
    file: TICK_CLAIMS,
    find: 'if (entries[0]?.path === entry.path) return',
    replace: 'if (entries.length > 0) return',
    specs: ['test/cluster/zookeeper-ticks'],
  },
  {
    title: 'zookeeper: the end of a run counts although the key was granted again',
    file: 'lib/backends/zookeeper/ticks/run-records.ts',
    find: 'const isRun = record?.holder === holder && (isHolder || oldest?.value.isHeld !== true);',
    replace: 'const isRun = record !== undefined;',
    specs: LAWS,
  },
  {
    title: 'zookeeper: the numbers of entries are compared as if they never began again',
    file: 'lib/backends/zookeeper/keyspace.ts',
    find: '(one - other) | 0;',
    replace: 'one - other;',
    specs: ['test/unit/backends/zookeeper/keyspace'],
  },
  {
    title: 'zookeeper: a lock near the end of the numbers is granted',
    file: 'lib/backends/zookeeper/locks/entry-creation.ts',
    find: 'if (!isNearLast(own.path)) return;',
    replace: 'if (own.path) return;',
    specs: ['test/cluster/zookeeper-sequence'],
  },
  {
    title: 'zookeeper: servers that have lost their data are never connected to again',
    file: SESSION,
    find: 'if (!this.#connection && this.#lease.isLost) this.#end();',
    replace: '',
    specs: ['test/cluster/zookeeper-wiped'],
  },
  {
    title: 'zookeeper: a watch that was not set is remembered',
    file: 'lib/backends/zookeeper/locks/predecessor-watches.ts',
    find: 'watched.catch(() => this.#watched.delete(path));',
    replace: 'watched.catch(() => undefined);',
    specs: ['test/cluster/zookeeper-queue'],
  },
  {
    title: 'zookeeper: a message that arrives in pieces is lost',
    file: 'lib/backends/zookeeper/wire/frame-reader.ts',
    find: 'this.#parts = [all.subarray(end)];',
    replace: 'this.#parts = [];',
    specs: ['test/unit/backends/zookeeper/wire'],
  },
  {
    title: 'zookeeper: a message that is too short ends the process',
    file: 'lib/backends/zookeeper/wire/host-connection.ts',
    find: 'if (!(error instanceof RangeError)) throw error;',
    replace: 'throw error;',
    specs: ['test/conformance/zookeeper-access'],
  },
  {
    title: 'zookeeper: a session shorter than asked for is accepted',
    file: SESSION,
    find: 'if (reply.timeoutMs < sessionTimeoutMs)',
    replace: 'if (reply.timeoutMs < 0)',
    specs: ['test/conformance/zookeeper-access'],
  },
  {
    title: 'zookeeper: nodes of a user are for everybody',
    file: 'lib/backends/zookeeper/acl-options.ts',
    find: "auth === undefined ? { scheme: 'world', id: 'anyone' } : { scheme: 'auth', id: '' },",
    replace: "{ scheme: auth === null ? 'auth' : 'world', id: 'anyone' },",
    specs: ['test/conformance/zookeeper-access'],
  },
  {
    title: 'zookeeper: a closed backend leaves its places to the session',
    file: 'lib/backends/zookeeper/zookeeper-backend.ts',
    find: 'await this.#client.close(!hasHeld);',
    replace: 'await this.#client.close(false);',
    specs: OWN_LOCKS_SPEC,
  },
  {
    title: 'zookeeper: chaos takes a leader that commits for one that stands still',
    file: ENSEMBLE,
    find: "if (mode !== 'leader' || outstanding === '0' || zxid !== before.zxid) return false;",
    replace: "if (mode !== 'leader' || outstanding === '0') return false;",
    specs: ENSEMBLE_SPEC,
  },
  {
    title: 'zookeeper: chaos takes a leader of which nobody wants anything for one that stands still',
    file: ENSEMBLE,
    find: "if (mode !== 'leader' || outstanding === '0' || zxid !== before.zxid) return false;",
    replace: "if (mode !== 'leader' || zxid !== before.zxid) return false;",
    specs: ENSEMBLE_SPEC,
  },
  {
    title: 'zookeeper: chaos lets a leader that stands still lead on',
    file: ENSEMBLE,
    find: `await leader.kill();
      await leader.startAgain();`,
    replace: '',
    specs: ENSEMBLE_SPEC,
  },
  {
    title: 'zookeeper: each try to get a session that is long enough leaves one behind',
    file: 'lib/backends/zookeeper/session/session.ts',
    find: `    this.#identity = reply;
    // The next`,
    replace: `    if (reply.timeoutMs === sessionTimeoutMs) this.#identity = reply;
    // The next`,
    specs: ['test/conformance/zookeeper-access'],
  },
];
