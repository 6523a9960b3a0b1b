import { randomUUID } from 'node:crypto';
import { afterEach, describe, expect, it } from '@jest/globals';
import { Redis } from 'ioredis';
import { Redis as Redis6 } from 'ioredis-6';
import { redlockBackend } from '../../lib/backends/redis/index.js';
import { Acquisition } from '../../lib/backends/redis/quorum/operations/acquisition.js';
import type { Quorum } from '../../lib/backends/redis/quorum/operations/quorum-operation.js';
import { Release } from '../../lib/backends/redis/quorum/operations/release.js';
import { PendingVotes } from '../../lib/backends/redis/quorum/operations/pending-votes.js';
import {
  NO_BALLOT,
  ServerCall,
  type CallReply,
  fixedWidth,
} from '../../lib/backends/redis/quorum/server-call.js';
import { repair } from '../../lib/backends/redis/quorum/replication/repair.js';
import { Renewal } from '../../lib/backends/redis/quorum/operations/renewal.js';
import { Replication } from '../../lib/backends/redis/quorum/replication/replication.js';
import { TickAcquisition } from '../../lib/backends/redis/quorum/operations/tick-acquisition.js';
import type { QuorumServer } from '../../lib/backends/redis/quorum/servers/quorum-server.js';
import type { ScriptRunner } from '../../lib/backends/redis/script-runner.js';
import { Quarantine } from '../../lib/backends/redis/quorum/servers/quarantine.js';
import { QuorumServers } from '../../lib/backends/redis/quorum/servers/quorum-servers.js';
import { HeldVotes } from '../../lib/backends/redis/quorum/operations/held-votes.js';
import type { ServerStatus } from '../../lib/core/backend.js';
import { systemClock } from '../../lib/core/clock.js';
import { LockConfigError } from '../../lib/core/errors.js';
import { PERSISTENT, startRedisQuorum } from '../services/redis-quorum.js';
import { startRedis } from '../services/redis-server.js';
import type { Service } from '../services/service.js';
import { type SlowProxy, slowProxy } from '../faults/injection/slow-proxy.js';
import { voteFrom } from '../services/vote.js';
import { until } from '../support/until.js';

/** What a quorum makes of its servers: who has a vote, and who is told of it. */

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function serve(count: number, args: readonly string[] = PERSISTENT): Promise<readonly Service[]> {
  const servers = await startRedisQuorum(count, args);
  for (const server of servers) ends.push(() => server.stop());
  return servers;
}

/** Kills the server, and starts it again with what is in its folder. */
async function restartPersistent(server: Service): Promise<void> {
  server.kill('SIGKILL');
  await server.exited;
  const { port, dataDir } = server;
  const again = await startRedis({ port, dataDir, args: PERSISTENT });
  ends.push(() => again.stop());
}

async function addressOf({ port }: Service): Promise<SlowProxy> {
  const proxy = await slowProxy(port);
  ends.push(() => proxy.close());
  return proxy;
}

const urlOf = ({ port }: { readonly port: number }) => `redis://127.0.0.1:${port}`;

function votersOf(urls: readonly string[], maxLeaseMs = 60_000): QuorumServers {
  const voters = new QuorumServers({
    sources: urls.map((url) => ({ url })),
    maxLeaseMs,
    channel: randomUUID(),
  });
  ends.push(() => voters.close());
  return voters;
}

async function openedOf(urls: readonly string[], maxLeaseMs?: number): Promise<QuorumServers> {
  const voters = votersOf(urls, maxLeaseMs);
  await voters.waitUntilReady({ serverLimitMs: 5_000, timeoutMs: 5_000 });
  return voters;
}

function adminOf({ url }: Service): Redis {
  const admin = new Redis(url);
  admin.on('error', () => undefined);
  ends.push(() => admin.disconnect());
  return admin;
}

const haveVotes = ({ all }: QuorumServers) => all.map(({ hasVote }) => hasVote);

/** Asks, and says whether it was answered. */
const asked = (
  voter: QuorumServer,
  call = new ServerCall([{ key: 'any', holder: '', command: 'inspect' }]),
) =>
  new Promise<boolean>((resolve) => {
    const hearer = { onReply: () => resolve(true), onFailure: () => resolve(false) };
    if (!voter.send(call, Infinity, hearer)) resolve(false);
  });

describe('one server under two addresses', () => {
  it('has one vote, whichever of them is reached first', async () => {
    const [twin, other] = await serve(2);
    const address = await addressOf(twin!);
    address.isOpen = false;
    const voters = await openedOf([urlOf(address), twin!.url, other!.url]);
    expect(haveVotes(voters)).toEqual([false, true, true]);
    const fromMs = systemClock.monotonicMs();
    address.isOpen = true;
    await until(() => voters.all[0]!.hasVote);
    expect(voters.all[0]!.hasVoteSince(fromMs)).toBe(false);
    expect(haveVotes(voters)).toEqual([true, false, true]);
    expect(voters.all[1]!.configError?.message).toContain(`${new URL(twin!.url).host}: it has one vote`);
  });

  it('keeps it when the address is lost that had it, but not for a question that is under way', async () => {
    const [twin, other] = await serve(2);
    const address = await addressOf(twin!);
    const voters = await openedOf([urlOf(address), twin!.url, other!.url]);
    expect(haveVotes(voters)).toEqual([true, false, true]);
    const fromMs = systemClock.monotonicMs();
    address.isOpen = false;
    await until(() => voters.all[1]!.hasVote);
    expect(voters.all[1]!.hasVoteSince(fromMs)).toBe(false);
    expect(voters.all[1]!.configError).toBeUndefined();
  });

  it('is one also where its databases differ', async () => {
    const [twin, other] = await serve(2);
    const voters = await openedOf([`${twin!.url}/0`, `${twin!.url}/1`, other!.url]);
    expect(haveVotes(voters)).toEqual([true, false, true]);
    expect(voters.all[1]!.configError?.message).toContain(`${new URL(twin!.url).host}/1: it has one vote`);
  });
});

describe('another server behind the address of one', () => {
  async function switched(args: readonly string[], maxLeaseMs: number) {
    const [first, second] = await serve(2, args);
    const address = await addressOf(first!);
    const voters = await openedOf([urlOf(address)], maxLeaseMs);
    const voter = voters.all[0]!;
    const admin = adminOf(second!);
    // For longer than what INFO may be wrong by.
    await until(async () => Number(/uptime_in_seconds:(\d+)/.exec(await admin.info('server'))?.[1]) >= 3);
    await until(() => voter.hasVote && asked(voter));
    address.targetPort = second!.port;
    address.cut();
    await until(() => !voter.hasVote);
    await until(() => voter.fault?.includes('is another server than before') ?? false);
    return { voter, address };
  }

  it.each([
    ['which persists', PERSISTENT],
    ['which has been up for long', ['--appendonly', 'no']],
  ])('%s, has no vote as long as leases of the first may last', async (_, args) => {
    const { voter, address } = await switched(args, 1_000);
    const fromMs = systemClock.monotonicMs();
    address.cut(); // Nor after it was lost and found again.
    await until(() => voter.hasVote);
    expect(systemClock.monotonicMs() - fromMs).toBeGreaterThan(2_500);
  });

  it('which followed it as a replica and has just started, has no vote either', async () => {
    const [first] = await serve(1);
    const address = await addressOf(first!);
    const voters = await openedOf([urlOf(address)]);
    const voter = voters.all[0]!;
    expect(voter.hasVote).toBe(true);
    const [second] = await serve(1, [...PERSISTENT, '--replicaof', `127.0.0.1 ${first!.port}`]);
    const admin = adminOf(second!);
    await until(async () => (await admin.info('replication')).includes('master_link_status:up'));
    address.targetPort = second!.port;
    address.cut();
    await until(() => voter.fault?.includes('is a replica') ?? false);
    await admin.replicaof('NO', 'ONE');
    await until(() => voter.fault?.includes('has no vote for another') ?? false);
  });

  it('is the same one, which keeps its vote, if it restarted and persists every write', async () => {
    const [server] = await serve(1);
    const voter = (await openedOf([server!.url])).all[0]!;
    await asked(voter);
    const { runId } = voter;
    server!.kill('SIGKILL');
    await server!.exited;
    const { port, dataDir } = server!;
    const again = await startRedis({ port, dataDir, args: PERSISTENT });
    ends.push(() => again.stop());
    await until(() => voter.runId !== undefined);
    expect(voter.runId).not.toBe(runId);
    expect(voter.hasVote).toBe(true);
  });

  it.each([
    ['since it started', PERSISTENT.slice(), []],
    ['since somebody set it so', ['--appendonly', 'no'], ['appendonly', 'yes', 'appendfsync', 'always']],
  ])(
    'may have forgotten when it started, for one who did not see that, if it persists %s',
    async (_, args, settings) => {
      const [server] = await serve(1, args);
      const admin = adminOf(server!);
      for (let at = 0; at < settings.length; at += 2)
        await admin.config('SET', settings[at]!, settings[at + 1]!);
      const voter = (await openedOf([server!.url])).all[0]!;
      expect(voter.hasVote).toBe(false);
      expect(voter.fault).toMatch(
        /has no vote for another \d\d s\. Settings changed now do not shorten this/,
      );
    },
  );

  it('may be the same one, which forgot, if it was told before it restarted to persist no more', async () => {
    const [server] = await serve(1);
    const voter = (await openedOf([server!.url], 5_000)).all[0]!;
    expect(voter.hasVote).toBe(true);
    const admin = adminOf(server!);
    const looks = async () =>
      Number(/config\|get:calls=(\d+)/.exec(await admin.info('commandstats'))?.[1] ?? 0);
    await admin.config('SET', 'appendonly', 'no');
    const before = await looks();
    await until(async () => (await looks()) >= before + 2); // So the first of them has been answered.
    await restartPersistent(server!);
    await until(() => voter.runId !== undefined);
    expect(voter.hasVote).toBe(false);
  });

  it('may be the same one, which forgot, if it was told to persist only after it had started', async () => {
    const [server] = await serve(1);
    const address = await addressOf(server!);
    const voter = (await openedOf([urlOf(address)])).all[0]!;
    expect(voter.hasVote).toBe(true);
    address.isOpen = false;
    address.cut();
    server!.kill('SIGKILL');
    await server!.exited;
    const { port, dataDir } = server!;
    const again = await startRedis({ port, dataDir });
    ends.push(() => again.stop());
    const admin = adminOf(again);
    await admin.config('SET', 'appendfsync', 'always');
    await admin.config('SET', 'appendonly', 'yes');
    await until(async () => /aof_rewrite_in_progress:0/.test(await admin.info('persistence')));
    await admin.config('RESETSTAT');
    address.isOpen = true;
    await until(() => voter.runId !== undefined);
    expect(voter.hasVote).toBe(false);
  });

  it('may have forgotten in a run that nobody saw, if it was away for as long as a quarantine', () => {
    const trust = new Quarantine(60_000);
    const at = (ms: number, wallMs = ms) => ({ monotonicMs: ms, wallMs });
    const start = { isPersistent: true, hasRewritten: false, isReplica: false, wasReplica: false, timeUs: 0 };
    const fromMs = (ms: number, wallMs?: number) => {
      const now = at(ms, wallMs);
      trust.onHandshake({ ...start, runId: randomUUID(), uptimeMs: 1_000, sentAt: now }, now);
      return trust.endsAtMs - ms;
    };
    trust.onHandshake({ ...start, runId: 'a', uptimeMs: 100_000, sentAt: at(0) }, at(0));
    expect(fromMs(30_000)).toBeLessThan(0);
    expect(fromMs(90_000)).toBe(60_000);
    expect(fromMs(170_000)).toBe(60_000);
    expect(fromMs(175_000, 235_000)).toBe(60_000); // Our machine slept.
    expect(fromMs(205_000, 265_000)).toBeLessThan(60_000);
  });

  it('may be the same one, which forgot, if it persists only from now on', async () => {
    const [server] = await serve(1, ['--appendonly', 'no']);
    const voter = (await openedOf([server!.url], 1_000)).all[0]!;
    await until(() => voter.hasVote);
    await restartPersistent(server!);
    await until(() => voter.runId !== undefined);
    expect(voter.hasVote).toBe(false);
  });
});

it('clients of ioredis 6, which speak RESP3, hear of it who a server is and what it keeps', async () => {
  const servers = await serve(3);
  const clients = servers.map(({ url }) => new Redis6(url, { lazyConnect: true }) as unknown as Redis);
  const backend = redlockBackend({ clients });
  ends.push(() => backend.close());
  await backend.check!(5_000);
  const claim = { key: randomUUID(), holder: randomUUID() };
  const { acquire } = await backend.execute(
    { acquire: [{ ...claim, leaseMs: 30_000, instance: '' }] },
    5_000,
  );
  expect(acquire[0]!.kind).toBe('granted');
  const { release } = await backend.execute({ release: [claim] }, 5_000);
  expect(release[0]!.kind).toBe('released');
});

it('a question that is answered after the end opens nothing', async () => {
  const [first, second, frozen] = await serve(3);
  const clients = [first!, second!, frozen!].map(({ url }) => new Redis(url, { lazyConnect: true }));
  const [other, closed] = [redlockBackend({ clients }), redlockBackend({ clients })];
  ends.push(() => Promise.all([other.close(), closed.close()]));
  const admin = adminOf(first!);
  const claim = () => ({ holder: randomUUID(), leaseMs: 30_000, instance: '' });
  const [taken, mine] = [
    { ...claim(), key: randomUUID() },
    { ...claim(), key: randomUUID() },
  ];
  await other.execute({ acquire: [taken] }, 5_000);
  await closed.execute({ acquire: [mine] }, 5_000);
  await adminOf(second!).del(`{${mine.key}}:vote`);
  frozen!.kill('SIGSTOP');
  ends.push(() => frozen!.kill('SIGCONT'));
  const wish = { ...claim(), key: taken.key, retryWithinMs: 10_000 };
  // What becomes of the renewal is not known before the third one has said so.
  const exchanged = closed.execute({ acquire: [wish], renew: [mine] }, 5_000);
  await until(async () => (await admin.get(`{${taken.key}}:vote`))?.includes(wish.holder) ?? false);
  await admin.ping(); // All that was answered before has been heard.
  await closed.close();
  expect((await exchanged).acquire[0]!.kind).toBe('taken');
  // What would be opened now is there before this.
  const late = new Redis(first!.url);
  ends.push(() => late.disconnect());
  await until(
    async () =>
      String(await late.client('LIST'))
        .trim()
        .split('\n').length === 3,
  );
});

it('an answer that is none of the script counts as none', async () => {
  class Strange extends ServerCall {
    readonly #told: unknown;
    constructor(told: unknown) {
      super([{ key: 'any', holder: '', command: 'inspect' }]);
      this.#told = told;
    }
    override run(_: ScriptRunner, circumstances: Parameters<ServerCall['run']>[1]): Promise<CallReply> {
      const answer = () => Promise.resolve(this.#told);
      return super.run({ eval: answer, evalsha: answer }, circumstances);
    }
  }
  const [server] = await serve(1);
  const voter = (await openedOf([server!.url])).all[0]!;
  const timeUs = 1_700_000_000_000_000;
  for (const told of [
    null,
    'OK',
    5,
    String(timeUs),
    'released',
    [],
    ['soon', 'free'],
    [timeUs],
    [timeUs, null],
  ]) {
    expect(await asked(voter, new Strange(told))).toBe(false);
    expect(voter.fault).toBe('did not answer (its answer is not that of our script)');
  }
  expect(await asked(voter)).toBe(true);
  expect(voter.fault).toBeUndefined();
});

it('a server that does not say who it is, is asked less and less often, and told of as a fault to mend', async () => {
  const [server] = await serve(1);
  const admin = adminOf(server!);
  await admin.call('ACL', 'SETUSER', 'shy', 'on', 'nopass', '~*', '&*', '+@all', '-info');
  const connections = async () =>
    Number(/total_connections_received:(\d+)/.exec(await admin.info('stats'))?.[1]);
  const before = await connections();
  const backend = redlockBackend({
    clients: [0, 1, 2].map((db) => ({ url: `${server!.url.replace('//', '//shy:any@')}/${db}` })),
  });
  ends.push(() => backend.close());
  const fault = await backend.check!(1_000).catch((error: unknown) => error);
  expect(fault).toBeInstanceOf(LockConfigError);
  expect((fault as Error).message).toContain('+info');
  const refusals = async () =>
    Number(/cmdstat_info:.*rejected_calls=(\d+)/.exec(await admin.info('commandstats'))?.[1]);
  const firstRefusals = await refusals();
  await until(async () => (await refusals()) >= firstRefusals + 6);
  // All over the same connections, so the warning that ioredis prints of each is not repeated.
  expect((await connections()) - before).toBe(3);
  await admin.call('ACL', 'SETUSER', 'shy', '+info');
  await until(async () => {
    const error = await backend.check!(1_000).catch((cause: unknown) => cause as Error);
    return String(error).includes('it has one vote');
  });
});

it('tells once of a server that is away, by its address, and once when it is back', async () => {
  const servers = await serve(3);
  const news: ServerStatus[] = [];
  const voters = await openedOf(servers.map(({ url }) => url));
  voters.listen((told) => news.push(told));
  const away = servers[1]!;
  away.kill('SIGKILL');
  await away.exited;
  await until(() => news.length === 1);
  const about = { server: new URL(away.url).host, needed: 2, servers: 3 };
  const refused = expect.stringContaining('cannot be reached') as unknown as string;
  expect(news).toEqual([{ ...about, voting: 2, fault: refused }]);
  const { port, dataDir } = away;
  const again = await startRedis({ port, dataDir, args: PERSISTENT });
  ends.push(() => again.stop());
  await until(() => news.length === 2);
  expect(news[1]).toEqual({ ...about, voting: 3 });
});

describe('votes and their way back', () => {
  const terms = { leaseMs: 30_000, memoryMs: 60_000, retryWithinMs: 0, tokenCount: 1, instance: 'spec' };
  const END = {
    roundNumber: 0,
    ballot: NO_BALLOT,
    sentAtMs: 0,
    endsAtMs: 0,
    timeoutMs: 500,
    wasSent: true,
    uncontacted: 0,
    unanswered: 0,
  };

  async function ballotOf(voters: QuorumServers) {
    const us = voters.nextBallotUs(0);
    return { us, firstUs: us, isRaised: false };
  }

  function quorumOf(voters: QuorumServers) {
    const late = new PendingVotes();
    return { servers: voters, replication: new Replication(voters, late), pendingVotes: late };
  }

  const isFree = async (admin: Redis, key: string) => {
    const lock = await admin.get(`{${key}}:vote`);
    return lock === null || voteFrom(lock).holder === undefined;
  };

  it('a vote is given back also if what asked for it arrives after the connection was lost', async () => {
    const [server] = await serve(1);
    const voters = await openedOf([server!.url]);
    const [voter, admin] = [voters.all[0]!, adminOf(server!)];
    const claim = { key: randomUUID(), holder: randomUUID() };
    const ballot = await ballotOf(voters);
    const votes = new HeldVotes(claim, quorumOf(voters));
    votes.endRound({ ballot, unanswered: 0 });
    votes.addUncertain(voter);
    votes.markLost();
    await asked(voter); // What is given back at once has arrived now.
    const call = new ServerCall([{ ...claim, command: terms }], ballot);
    const circumstances = { notAfterUs: Infinity, ballotToleranceUs: 60_000_000, channel: 'spec' };
    expect((await call.run(admin, circumstances)).replies).toEqual(['granted']);
    await until(() => isFree(admin, claim.key));
  });

  it('votes for one key are given back one after the other', async () => {
    const [server] = await serve(1);
    const voters = await openedOf([server!.url]);
    const [voter, admin] = [voters.all[0]!, adminOf(server!)];
    const key = randomUUID();
    const [his, other] = [randomUUID(), randomUUID()];
    const ballot = await ballotOf(voters);
    await asked(voter, new ServerCall([{ key, holder: his, command: terms }], ballot));
    const farewell = `yield ${fixedWidth(ballot.us)} ${fixedWidth(ballot.us)}`;
    voter.release({ key, holder: his, command: `${farewell} 0` });
    voter.release({ key, holder: other, command: `${farewell} 6000` });
    await until(async () => (await admin.get(`{${key}}:vote`))?.includes(other) ?? false);
    expect(await isFree(admin, key)).toBe(true);
  });

  it('many votes for one key do not wait for each other', async () => {
    const [server] = await serve(1);
    const voters = await openedOf([server!.url]);
    const [voter, admin] = [voters.all[0]!, adminOf(server!)];
    const claim = { key: randomUUID(), holder: randomUUID() };
    await asked(voter, new ServerCall([{ ...claim, command: terms }], await ballotOf(voters)));
    for (let count = 0; count < 1_000; count += 1)
      voter.release({ key: claim.key, holder: randomUUID(), command: 'release' });
    voter.release({ ...claim, command: 'release' });
    await until(() => isFree(admin, claim.key));
  });

  it('a lock that is to be given back is, whatever becomes of its questions', async () => {
    const [server] = await serve(1);
    const voters = await openedOf([server!.url]);
    const [voter, admin] = [voters.all[0]!, adminOf(server!)];
    const claim = { key: randomUUID(), holder: randomUUID() };
    const earlier = fixedWidth((await ballotOf(voters)).us);
    await asked(voter, new ServerCall([{ ...claim, command: terms }], await ballotOf(voters)));
    voter.releaseLater({ ...claim, command: 'release' });
    voter.release({ ...claim, command: `yield ${earlier} ${earlier} 0` });
    await until(() => isFree(admin, claim.key));
  });

  it('a tick is not marked after the time of its claim', () => {
    const quorum = quorumOf(votersOf(['redis://one', 'redis://two', 'redis://three']));
    const tick = { tickMs: Date.now(), maxEarlyMs: 1_000, staleAfterMs: 60_000 };
    const claim = { key: randomUUID(), holder: randomUUID(), leaseMs: 30_000, instance: 'spec', tick };
    const concluded = (lateMs: number) => {
      const acquisition = new TickAcquisition(claim, quorum);
      const nowMs = systemClock.monotonicMs();
      for (const voter of quorum.servers.all)
        acquisition.onReply(voter, 'granted = - - -', Date.now() * 1_000);
      const pauseMs = acquisition.conclude({ ...END, sentAtMs: nowMs - END.timeoutMs - lateMs });
      return [pauseMs, acquisition.result?.kind];
    };
    expect(concluded(-400)).toEqual([0, undefined]);
    expect(concluded(1)).toEqual([undefined, 'unknown']);
  });

  it('one that comes after the lock was given back is given back, too', async () => {
    const [server] = await serve(1);
    const voters = await openedOf([server!.url]);
    const [voter, admin] = [voters.all[0]!, adminOf(server!)];
    const claim = { key: randomUUID(), holder: randomUUID() };
    const quorum = quorumOf(voters);
    quorum.pendingVotes.add(claim.holder, voter.bit);
    new Release(claim, quorum);
    const call = new ServerCall([{ ...claim, command: terms }], await ballotOf(voters));
    expect(await asked(voter, call)).toBe(true);
    expect(await isFree(admin, claim.key)).toBe(false);
    await until(() => isFree(admin, claim.key));
  });

  describe('a release', () => {
    /** What it comes to, if of five servers these say so one after the other, and the rest do not answer. */
    function toldAfter(...told: readonly string[]) {
      const quorum = quorumOf(
        votersOf(['one', 'two', 'three', 'four', 'five'].map((name) => `redis://${name}`)),
      );
      const { all } = quorum.servers;
      const giving = new Release({ key: randomUUID(), holder: randomUUID() }, quorum);
      for (const [index, answer] of told.entries()) {
        if (answer === 'aside') giving.onUncountedReply(all[index]!);
        else if (answer !== 'owing') giving.onReply(all[index]!, answer);
      }
      const isEarly = giving.isSettled;
      for (const voter of all.slice(told.length)) giving.onNoReply(voter, false);
      giving.conclude(END);
      return [giving.result?.kind, isEarly];
    }

    it('is sure as soon as a majority had it', () => {
      expect(toldAfter('released', 'released', 'released')).toEqual(['released', true]);
    });

    it('waits for the others, if it is gone from one of the majority', () => {
      expect(toldAfter('released', 'released', 'gone')).toEqual(['released', false]);
    });

    it('does not wait for the word of one that has no vote', () => {
      expect(toldAfter('released', 'released', 'gone', 'gone', 'aside')).toEqual(['released', true]);
    });

    it('was of a lock that was held, if one still owes an answer in the end', () => {
      expect(toldAfter('released', 'released', 'gone', 'gone', 'owing')).toEqual(['released', false]);
    });

    it('was of no lock any more, if it is gone from a majority', () => {
      expect(toldAfter('released', 'released', 'gone', 'gone', 'gone')).toEqual(['gone', true]);
    });
  });

  it('who has a lock knows which servers may yet vote for it', () => {
    const quorum = quorumOf(votersOf(['redis://one', 'redis://two', 'redis://three']));
    const { all, needed, allBits: everyone } = quorum.servers;
    const claim = { key: randomUUID(), holder: randomUUID() };
    const request = { ...claim, leaseMs: 30_000, instance: 'spec' };
    const [lateOne, ...others] = all;
    const acquire = () => {
      const acquisition = new Acquisition(request, { command: terms, initialServers: everyone }, quorum);
      for (const voter of others.slice(0, needed)) acquisition.onReply(voter, 'granted', 1);
      acquisition.conclude({
        ...END,
        ballot: { us: 1, firstUs: 1, isRaised: false },
        unanswered: lateOne!.bit,
      });
      expect(acquisition.result?.kind).toBe('granted');
      return acquisition;
    };
    acquire();
    expect(quorum.pendingVotes.take(claim.holder)).toBe(lateOne!.bit);
    acquire().onUncountedReply(lateOne!, 'granted');
    expect(quorum.pendingVotes.take(claim.holder)).toBe(0);
  });

  describe('after a renewal', () => {
    /** A lock that two of three servers hold, and its renewal, to which they have answered in this order. */
    async function renewedIn(quorum: Quorum, witnesses: readonly QuorumServer[], leaseMs = 30_000) {
      const claim = { key: randomUUID(), holder: randomUUID() };
      const call = new ServerCall([{ ...claim, command: terms }], await ballotOf(quorum.servers));
      await Promise.all(witnesses.map((voter) => asked(voter, call)));
      const renewal = new Renewal({ ...claim, leaseMs }, `renew ${leaseMs} 60000`, quorum);
      for (const voter of witnesses) renewal.onReply(voter, 'renewed');
      renewal.onReply(quorum.servers.all[2]!, 'lost');
      renewal.conclude(END);
      return renewal;
    }

    async function renewed() {
      const servers = await serve(3);
      const voters = await openedOf(servers.map(({ url }) => url));
      const quorum = quorumOf(voters);
      const renewal = await renewedIn(quorum, voters.all.slice(0, 2));
      const stranger = { voter: voters.all[2]!, admin: adminOf(servers[2]!) };
      return { quorum, renewal, stranger, key: renewal.key };
    }

    it('a server that lost the lock holds it again', async () => {
      const { quorum, renewal, stranger, key } = await renewed();
      await repair(quorum, [renewal], systemClock.monotonicMs());
      await until(async () => !(await isFree(stranger.admin, key)));
      await asked(stranger.voter); // Its earlier reply has arrived by then.
      expect(quorum.pendingVotes.take(renewal.holder)).toBe(0);
    });

    it('a server that was told to hold it gives it back, if it is given back meanwhile', async () => {
      const { quorum, renewal, stranger, key } = await renewed();
      await repair(quorum, [renewal], systemClock.monotonicMs());
      new Release(renewal, quorum);
      await asked(stranger.voter); // What was sent before has arrived now.
      await until(() => isFree(stranger.admin, key));
    });

    it('a server is not told to hold it, if it was given back before', async () => {
      const { quorum, renewal, stranger, key } = await renewed();
      const rejoined = repair(quorum, [renewal], systemClock.monotonicMs());
      new Release(renewal, quorum);
      await rejoined;
      await asked(stranger.voter);
      expect(await isFree(stranger.admin, key)).toBe(true);
    });

    it('a server holds it again also if two renewals find that it does not, and one of them is too late', async () => {
      const { quorum, renewal, stranger, key } = await renewed();
      const nowMs = systemClock.monotonicMs();
      const late = repair(quorum, [renewal], nowMs - 15_001);
      await Promise.all([late, repair(quorum, [renewal], nowMs)]);
      await until(async () => !(await isFree(stranger.admin, key)));
    });

    it('a server holds it again also if somebody only asked meanwhile whether another one is held', async () => {
      const { quorum, renewal, stranger, key } = await renewed();
      const question = await renewedIn(quorum, quorum.servers.all.slice(0, 2), 10);
      await repair(quorum, [renewal, question], systemClock.monotonicMs() - 20);
      await until(async () => !(await isFree(stranger.admin, key)));
    });

    it('it does not, once half of the lease is over', async () => {
      const { quorum, renewal, stranger, key } = await renewed();
      await repair(quorum, [renewal], systemClock.monotonicMs() - 15_001);
      await asked(stranger.voter); // What was sent before has arrived now.
      expect(await isFree(stranger.admin, key)).toBe(true);
      expect(quorum.pendingVotes.take(renewal.holder)).toBe(0);
    });

    it('one that does not answer when asked for its copy keeps nobody else from it', async () => {
      const { quorum, renewal, stranger, key } = await renewed();
      const { all } = quorum.servers;
      const other = await renewedIn(quorum, all.slice(0, 2).reverse());
      all[0]!.close();
      await repair(quorum, [renewal, other], systemClock.monotonicMs());
      await until(async () => !(await isFree(stranger.admin, other.key)));
      expect(await isFree(stranger.admin, key)).toBe(true);
    });
  });
});
