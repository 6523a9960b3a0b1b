import { randomUUID } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { afterEach, describe, expect, it } from 'vitest';
import { Redis } from 'ioredis';
import { Redis as Redis6 } from 'ioredis-6';
import { redlockBackend } from '../../lib/backends/redis/index.js';
import { Acquisition } from '../../lib/backends/redis/quorum/operations/acquisition.js';
import { readTicks, setPaused } from '../../lib/backends/redis/quorum/operations/majority-queries.js';
import { PendingVotes } from '../../lib/backends/redis/quorum/operations/pending-votes.js';
import type { Quorum } from '../../lib/backends/redis/quorum/operations/quorum-operation.js';
import { Release } from '../../lib/backends/redis/quorum/operations/release.js';
import { Renewal } from '../../lib/backends/redis/quorum/operations/renewal.js';
import { TickAcquisition } from '../../lib/backends/redis/quorum/operations/tick-acquisition.js';
import { Replication } from '../../lib/backends/redis/quorum/replication/replication.js';
import {
  type CallReply,
  NO_BALLOT,
  ServerCall,
  fixedWidth,
  voteKeyOf,
} from '../../lib/backends/redis/quorum/server-call.js';
import { Quarantine } from '../../lib/backends/redis/quorum/servers/quarantine.js';
import type { QuorumServer } from '../../lib/backends/redis/quorum/servers/quorum-server.js';
import { QuorumServers } from '../../lib/backends/redis/quorum/servers/quorum-servers.js';
import type { ScriptRunner } from '../../lib/backends/redis/script-runner.js';
import type { ServerStatus } from '../../lib/core/store-notices.js';
import { systemClock } from '../../lib/core/clock.js';
import { LockConfigError } from '../../lib/core/errors.js';
import { PERSISTENT, startRedisQuorum } from '../services/redis-quorum.js';
import { startRedis } from '../services/redis-server.js';
import type { Service } from '../services/service.js';
import { type SlowProxy, slowProxy } from '../faults/injection/slow-proxy.js';
import { voteFrom, waitsUntilUs } from '../services/vote.js';
import { until } from '../support/until.js';

/** Which servers of a quorum have a vote, and how votes and locks are released and repaired. */

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function serve(count: number, args: readonly string[] = PERSISTENT): Promise<readonly Service[]> {
  const servers = await startRedisQuorum(count, args);
  for (const server of servers) ends.push(() => server.stop());
  return servers;
}

/** Kills the server, and starts it again with its data. */
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

function createServers(urls: readonly string[], maxLeaseMs = 60_000): QuorumServers {
  const quorumServers = new QuorumServers({
    sources: urls.map((url) => ({ url })),
    maxLeaseMs,
    channel: randomUUID(),
  });
  ends.push(() => quorumServers.close());
  return quorumServers;
}

async function openServers(urls: readonly string[], maxLeaseMs?: number): Promise<QuorumServers> {
  const quorumServers = createServers(urls, maxLeaseMs);
  await quorumServers.waitUntilReady({
    serverLimitMs: 5_000,
    timeoutMs: 5_000,
    closed: quorumServers.closed,
  });
  return quorumServers;
}

function adminOf({ url }: Service): Redis {
  const admin = new Redis(url);
  admin.on('error', () => undefined);
  ends.push(() => admin.disconnect());
  return admin;
}

/** Waits until the server has so many connections, with one that begins now: any that was opened wrongly would be there before. */
async function untilConnections({ url }: Service, count: number): Promise<void> {
  const late = new Redis(url);
  ends.push(() => late.disconnect());
  await until(
    async () =>
      String(await late.client('LIST'))
        .trim()
        .split('\n').length === count,
  );
}

function ballotOf(quorumServers: QuorumServers) {
  const us = quorumServers.ballots.nextUs(0);
  return { us, firstUs: us, isRaised: false };
}

const haveVotes = ({ all }: QuorumServers) => all.map(({ hasVote }) => hasVote);

/** Sends a call, and returns whether a reply came. Replies to earlier calls have arrived by then. */
const hasReply = (
  quorumServer: QuorumServer,
  call = new ServerCall([{ key: 'any', holder: '', command: 'inspect' }]),
) =>
  new Promise<boolean>((resolve) => {
    const listener = { onReply: () => resolve(true), onFailure: () => resolve(false) };
    if (!quorumServer.send(call, Infinity, listener)) resolve(false);
  });

describe('a server that is configured under two addresses', () => {
  it('has one vote, whichever address connects first', async () => {
    const [shared, other] = await serve(2);
    const address = await addressOf(shared!);
    address.isOpen = false;
    const quorumServers = await openServers([urlOf(address), shared!.url, other!.url]);
    expect(haveVotes(quorumServers)).toEqual([false, true, true]);
    const fromMs = systemClock.monotonicMs();
    address.isOpen = true;
    await until(() => quorumServers.all[0]!.hasVote);
    expect(quorumServers.all[0]!.hasVoteSince(fromMs)).toBe(false);
    expect(haveVotes(quorumServers)).toEqual([true, false, true]);
    expect(quorumServers.all[1]!.configError?.message).toContain(
      `${new URL(shared!.url).host}: it has one vote`,
    );
  });

  it('keeps its vote when the address with the vote is lost, but not for a request that is in progress', async () => {
    const [shared, other] = await serve(2);
    const address = await addressOf(shared!);
    const quorumServers = await openServers([urlOf(address), shared!.url, other!.url]);
    expect(haveVotes(quorumServers)).toEqual([true, false, true]);
    const fromMs = systemClock.monotonicMs();
    address.isOpen = false;
    await until(() => quorumServers.all[1]!.hasVote);
    expect(quorumServers.all[1]!.hasVoteSince(fromMs)).toBe(false);
    expect(quorumServers.all[1]!.configError).toBeUndefined();
  });

  it('has one vote even if the databases differ', async () => {
    const [shared, other] = await serve(2);
    const quorumServers = await openServers([`${shared!.url}/0`, `${shared!.url}/1`, other!.url]);
    expect(haveVotes(quorumServers)).toEqual([true, false, true]);
    expect(quorumServers.all[1]!.configError?.message).toContain(
      `${new URL(shared!.url).host}/1: it has one vote`,
    );
  });
});

describe('a server behind the same address after a reconnect', () => {
  async function switched(args: readonly string[], maxLeaseMs: number) {
    const [first, second] = await serve(2, args);
    const address = await addressOf(first!);
    const quorumServers = await openServers([urlOf(address)], maxLeaseMs);
    const quorumServer = quorumServers.all[0]!;
    const admin = adminOf(second!);
    // Up for longer than the error of the uptime in INFO.
    await until(async () => Number(/uptime_in_seconds:(\d+)/.exec(await admin.info('server'))?.[1]) >= 3);
    await until(() => quorumServer.hasVote && hasReply(quorumServer));
    address.targetPort = second!.port;
    address.cut();
    await until(() => !quorumServer.hasVote);
    await until(() => quorumServer.fault?.includes('is another server than before') ?? false);
    return { quorumServer, address };
  }

  it.each([
    ['that persists', PERSISTENT],
    ['that has been up for long', ['--appendonly', 'no']],
  ])('is another server %s: it has no vote while leases of the first may still run', async (_, args) => {
    const { quorumServer, address } = await switched(args, 1_000);
    const fromMs = systemClock.monotonicMs();
    address.cut(); // A reconnect must not end the quarantine.
    await until(() => quorumServer.hasVote);
    expect(systemClock.monotonicMs() - fromMs).toBeGreaterThan(2_500);
  });

  it('was its replica and has just started: it has no vote', async () => {
    const [first] = await serve(1);
    const address = await addressOf(first!);
    const quorumServers = await openServers([urlOf(address)]);
    const quorumServer = quorumServers.all[0]!;
    expect(quorumServer.hasVote).toBe(true);
    const [second] = await serve(1, [...PERSISTENT, '--replicaof', `127.0.0.1 ${first!.port}`]);
    const admin = adminOf(second!);
    await until(async () => (await admin.info('replication')).includes('master_link_status:up'));
    address.targetPort = second!.port;
    address.cut();
    await until(() => quorumServer.fault?.includes('is a replica') ?? false);
    await admin.replicaof('NO', 'ONE');
    await until(() => quorumServer.fault?.includes('has no vote for another') ?? false);
  });

  it('is the same server and persists every write: it keeps its vote over a restart', async () => {
    const [server] = await serve(1);
    const quorumServer = (await openServers([server!.url])).all[0]!;
    await hasReply(quorumServer);
    const { runId } = quorumServer;
    server!.kill('SIGKILL');
    await server!.exited;
    const { port, dataDir } = server!;
    const again = await startRedis({ port, dataDir, args: PERSISTENT });
    ends.push(() => again.stop());
    await until(() => quorumServer.runId !== undefined);
    expect(quorumServer.runId).not.toBe(runId);
    expect(quorumServer.hasVote).toBe(true);
  });

  it.each([
    ['since its start', PERSISTENT.slice(), []],
    [
      'since a change of its settings',
      ['--appendonly', 'no'],
      ['appendonly', 'yes', 'appendfsync', 'always'],
    ],
  ])(
    'has no vote for a process that did not see its start, even if it persists %s',
    async (_, args, settings) => {
      const [server] = await serve(1, args);
      const admin = adminOf(server!);
      for (let at = 0; at < settings.length; at += 2)
        await admin.config('SET', settings[at]!, settings[at + 1]!);
      const quorumServer = (await openServers([server!.url])).all[0]!;
      expect(quorumServer.hasVote).toBe(false);
      expect(quorumServer.fault).toMatch(
        /has no vote for another \d\d s\. Changing its settings now does not shorten this/,
      );
    },
  );

  it('has no vote if persistence was switched off before the restart', async () => {
    const [server] = await serve(1);
    const quorumServer = (await openServers([server!.url], 5_000)).all[0]!;
    expect(quorumServer.hasVote).toBe(true);
    const admin = adminOf(server!);
    const settingsRead = async () =>
      Number(/config\|get:calls=(\d+)/.exec(await admin.info('commandstats'))?.[1] ?? 0);
    await admin.config('SET', 'appendonly', 'no');
    const before = await settingsRead();
    await until(async () => (await settingsRead()) >= before + 2); // The first reading has been replied to.
    await restartPersistent(server!);
    await until(() => quorumServer.runId !== undefined);
    expect(quorumServer.hasVote).toBe(false);
  });

  it('has no vote if persistence was switched on only after the restart', async () => {
    const [server] = await serve(1);
    const address = await addressOf(server!);
    const quorumServer = (await openServers([urlOf(address)])).all[0]!;
    expect(quorumServer.hasVote).toBe(true);
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
    await until(() => quorumServer.runId !== undefined);
    expect(quorumServer.hasVote).toBe(false);
  });

  it('has no vote if it was away for as long as a quarantine, because of an unseen run in between', () => {
    const quarantine = new Quarantine(60_000);
    const at = (ms: number, wallMs = ms) => ({ monotonicMs: ms, wallMs });
    const data = { replicationId: 'of a', timeUs: 0 };
    const start = { ...data, isPersistent: true, hasRewritten: false, isReplica: false, wasReplica: false };
    const fromMs = (ms: number, wallMs?: number) => {
      const now = at(ms, wallMs);
      quarantine.onHandshake({ ...start, runId: randomUUID(), uptimeMs: 1_000, sentAt: now }, now);
      return quarantine.endsAtMs - ms;
    };
    quarantine.onHandshake({ ...start, runId: 'a', uptimeMs: 100_000, sentAt: at(0) }, at(0));
    expect(fromMs(30_000)).toBeLessThan(0);
    expect(fromMs(90_000)).toBe(60_000);
    expect(fromMs(170_000)).toBe(60_000);
    expect(fromMs(175_000, 235_000)).toBe(60_000); // This machine slept.
    expect(fromMs(205_000, 265_000)).toBeLessThan(60_000);
  });

  it('has no vote if it persists only since the restart', async () => {
    const [server] = await serve(1, ['--appendonly', 'no']);
    const quorumServer = (await openServers([server!.url], 1_000)).all[0]!;
    await until(() => quorumServer.hasVote);
    await restartPersistent(server!);
    await until(() => quorumServer.runId !== undefined);
    expect(quorumServer.hasVote).toBe(false);
  });
});

describe('a server that was a replica for a moment, and may have lost what it had granted,', () => {
  const beReplica = async (admin: Redis) => {
    await admin.replicaof('127.0.0.1', 1);
    return () => admin.replicaof('NO', 'ONE');
  };

  it('has no vote from its first refusal of a write on', async () => {
    const [server] = await serve(1);
    const quorumServers = await openServers([server!.url]);
    const quorumServer = quorumServers.all[0]!;
    expect(quorumServer.hasVote).toBe(true);
    const promote = await beReplica(adminOf(server!));
    const command = { leaseMs: 1_000, memoryMs: 0, retryWithinMs: 0, tokenCount: 1, instance: '' };
    const request = { key: randomUUID(), holder: randomUUID(), command };
    const call = new ServerCall([request], ballotOf(quorumServers));
    expect(await hasReply(quorumServer, call)).toBe(false);
    expect(quorumServer.hasVote).toBe(false);
    await promote();
    const fault = /was a replica of another server.*no vote for another \d\d s/;
    await until(() => fault.test(quorumServer.fault ?? ''));
    expect(quorumServer.hasVote).toBe(false);
  });

  it('has no vote from the next check on, even if nobody has asked it meanwhile', async () => {
    const [server] = await serve(1);
    const quorumServer = (await openServers([server!.url], 10_000)).all[0]!;
    await until(() => quorumServer.hasVote);
    const promote = await beReplica(adminOf(server!));
    await promote();
    await until(() => quorumServer.fault?.includes('was a replica') ?? false);
    expect(quorumServer.hasVote).toBe(false);
  });

  it('has no vote if that was while it was away', async () => {
    const [server] = await serve(1);
    const address = await addressOf(server!);
    const quorumServer = (await openServers([urlOf(address)])).all[0]!;
    expect(quorumServer.hasVote).toBe(true);
    address.isOpen = false;
    address.cut();
    await until(() => quorumServer.runId === undefined);
    const promote = await beReplica(adminOf(server!));
    await promote();
    address.isOpen = true;
    await until(() => quorumServer.runId !== undefined);
    expect(quorumServer.fault ?? '').toContain('was a replica');
  });
});

it('clients of ioredis 6, which use RESP3, read the handshake of a server', async () => {
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

it('a reply after close opens no connection', async () => {
  const [first, second, frozen] = await serve(3);
  const clients = [first!, second!, frozen!].map(({ url }) => new Redis(url, { lazyConnect: true }));
  const [other, closed] = [redlockBackend({ clients }), redlockBackend({ clients })];
  ends.push(() => Promise.all([other.close(), closed.close()]));
  const admins = [adminOf(first!), adminOf(second!)];
  const claim = () => ({ holder: randomUUID(), leaseMs: 30_000, instance: '' });
  const [taken, mine] = [
    { ...claim(), key: randomUUID() },
    { ...claim(), key: randomUUID() },
  ];
  await other.execute({ acquire: [taken] }, 5_000);
  await closed.execute({ acquire: [mine] }, 5_000);
  await admins[1]!.del(`{${mine.key}}:vote`);
  frozen!.kill('SIGSTOP');
  ends.push(() => frozen!.kill('SIGCONT'));
  const waiting = { ...claim(), key: taken.key, retryWithinMs: 10_000 };
  // The renewal has no result before the third server replies.
  const exchanged = closed.execute({ acquire: [waiting], renew: [mine] }, 5_000);
  for (const admin of admins) {
    await until(async () => waitsUntilUs((await admin.get(`{${taken.key}}:vote`)) ?? '') > 0);
    await admin.ping(); // The reply of this server has arrived.
  }
  await setImmediate(); // And it was read.
  await closed.close();
  expect((await exchanged).acquire[0]!.kind).toBe('taken');
  await untilConnections(first!, 3);
});

it('the second look of an inspection opens no connection after close', async () => {
  const [first, second, frozen] = await serve(3);
  const clients = [first!, second!, frozen!].map(({ url }) => new Redis(url, { lazyConnect: true }));
  const backend = redlockBackend({ clients });
  ends.push(() => backend.close());
  const held = { key: randomUUID(), holder: randomUUID() };
  await backend.execute({ acquire: [{ ...held, leaseMs: 30_000, instance: '' }] }, 5_000);
  await adminOf(second!).del(`{${held.key}}:vote`);
  frozen!.kill('SIGSTOP');
  ends.push(() => frozen!.kill('SIGCONT'));
  // One server has the lock, one has not, and one does not say.
  const inspecting = backend.inspect(held.key, 5_000);
  const absent = { key: randomUUID(), holder: randomUUID() };
  // Sent after the inspection, and so answered after it.
  await backend.execute({ release: [absent] }, 5_000);
  await backend.close();
  await expect(inspecting).rejects.toThrow('servers must agree');
  await untilConnections(first!, 1);
});

it('a reply that is not of the vote script counts as no reply', async () => {
  class OtherReply extends ServerCall {
    readonly #reply: unknown;
    constructor(reply: unknown) {
      super([{ key: 'any', holder: '', command: 'inspect' }]);
      this.#reply = reply;
    }
    override run(_: ScriptRunner, context: Parameters<ServerCall['run']>[1]): Promise<CallReply> {
      const run = () => Promise.resolve(this.#reply);
      return super.run({ eval: run, evalsha: run }, context);
    }
  }
  const [server] = await serve(1);
  const quorumServer = (await openServers([server!.url])).all[0]!;
  const timeUs = 1_700_000_000_000_000;
  for (const reply of [
    null,
    'OK',
    5,
    String(timeUs),
    'released',
    [],
    'soon\0free',
    `${timeUs}\0free\0free`,
    [timeUs, 'free'],
  ]) {
    expect(await hasReply(quorumServer, new OtherReply(reply))).toBe(false);
    expect(quorumServer.fault).toBe('did not reply (its reply is not that of the vote script)');
  }
  expect(await hasReply(quorumServer)).toBe(true);
  expect(quorumServer.fault).toBeUndefined();
});

it('a server that refuses INFO is hasReply less and less often, and reported as a configuration error', async () => {
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
  // All over the same connections, because ioredis prints a warning for each new one.
  expect((await connections()) - before).toBe(3);
  await admin.call('ACL', 'SETUSER', 'shy', '+info');
  await until(async () => {
    const error = await backend.check!(1_000).catch((cause: unknown) => cause as Error);
    return String(error).includes('it has one vote');
  });
});

it('a server that is away is reported once, by its address, and once when it is back', async () => {
  const servers = await serve(3);
  const news: ServerStatus[] = [];
  const quorumServers = await openServers(servers.map(({ url }) => url));
  quorumServers.listen((status) => news.push(status));
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

describe('a release of votes', () => {
  const command = { leaseMs: 30_000, memoryMs: 60_000, retryWithinMs: 0, tokenCount: 1, instance: 'spec' };
  const END = {
    roundNumber: 0,
    ballot: NO_BALLOT,
    sentAtMs: 0,
    endsAtMs: 0,
    latestEndMs: 0,
    timeoutMs: 500,
    wasSent: true,
    uncontacted: 0,
    unanswered: 0,
  };

  function quorumOf(quorumServers: QuorumServers) {
    const pendingVotes = new PendingVotes();
    return {
      servers: quorumServers,
      replication: new Replication(quorumServers, pendingVotes),
      pendingVotes,
    };
  }

  const isFree = async (admin: Redis, key: string) => {
    const lock = await admin.get(`{${key}}:vote`);
    return lock === null || voteFrom(lock).holder === undefined;
  };

  it('a vote is released even if its request arrives after the connection was lost', async () => {
    const [server] = await serve(1);
    const quorumServers = await openServers([server!.url]);
    const [quorumServer, admin] = [quorumServers.all[0]!, adminOf(server!)];
    const claim = { key: randomUUID(), holder: randomUUID() };
    const ballot = ballotOf(quorumServers);
    const request = { ...claim, leaseMs: command.leaseMs, instance: 'spec' };
    const acquisition = new Acquisition(request, { command, initialServers: 1 }, quorumOf(quorumServers));
    acquisition.onNoReply(quorumServer, true);
    acquisition.conclude({ ...END, ballot });
    expect(acquisition.result?.kind).toBe('unknown');
    await hasReply(quorumServer); // A release that was sent at once has arrived by now.
    const call = new ServerCall([{ ...claim, command }], ballot);
    const context = { notAfterUs: Infinity, ballotToleranceUs: 60_000_000, channel: 'spec' };
    expect((await call.run(admin, context)).replies).toEqual(['granted']);
    await until(() => isFree(admin, claim.key));
  });

  it('votes of two holders for one key are released one after the other', async () => {
    const [server] = await serve(1);
    const quorumServers = await openServers([server!.url]);
    const [quorumServer, admin] = [quorumServers.all[0]!, adminOf(server!)];
    const key = randomUUID();
    const [holder, other] = [randomUUID(), randomUUID()];
    const ballot = ballotOf(quorumServers);
    await hasReply(quorumServer, new ServerCall([{ key, holder, command }], ballot));
    const yieldVote = `yield ${fixedWidth(ballot.us)} ${fixedWidth(ballot.us)}`;
    quorumServer.release({ key, holder, command: `${yieldVote} 0` });
    quorumServer.release({ key, holder: other, command: `${yieldVote} 6000` });
    await until(async () => waitsUntilUs((await admin.get(`{${key}}:vote`)) ?? '') > 0);
    expect(await isFree(admin, key)).toBe(true);
  });

  it('many releases for one key do not wait for each other', async () => {
    const [server] = await serve(1);
    const quorumServers = await openServers([server!.url]);
    const [quorumServer, admin] = [quorumServers.all[0]!, adminOf(server!)];
    const claim = { key: randomUUID(), holder: randomUUID() };
    await hasReply(quorumServer, new ServerCall([{ ...claim, command }], ballotOf(quorumServers)));
    for (let count = 0; count < 1_000; count += 1)
      quorumServer.release({ key: claim.key, holder: randomUUID(), command: 'release' });
    quorumServer.release({ ...claim, command: 'release' });
    await until(() => isFree(admin, claim.key));
  });

  it('a pending release of a lock is not replaced by the release of a vote', async () => {
    const [server] = await serve(1);
    const quorumServers = await openServers([server!.url]);
    const [quorumServer, admin] = [quorumServers.all[0]!, adminOf(server!)];
    const claim = { key: randomUUID(), holder: randomUUID() };
    const earlier = fixedWidth(ballotOf(quorumServers).us);
    await hasReply(quorumServer, new ServerCall([{ ...claim, command }], ballotOf(quorumServers)));
    quorumServer.releaseLater({ ...claim, command: 'release' });
    quorumServer.release({ ...claim, command: `yield ${earlier} ${earlier} 0` });
    await until(() => isFree(admin, claim.key));
  });

  it('a pending release of a vote is not replaced by that of a later acquisition, which never arrived', async () => {
    const [server] = await serve(1);
    const quorumServers = await openServers([server!.url]);
    const [quorumServer, admin] = [quorumServers.all[0]!, adminOf(server!)];
    const claim = { key: randomUUID(), holder: randomUUID() };
    const ballot = ballotOf(quorumServers);
    const yieldOf = (us: number) => `yield ${fixedWidth(us)} ${fixedWidth(us)} 0`;
    await hasReply(quorumServer, new ServerCall([{ ...claim, command }], ballot));
    quorumServer.releaseLater({ ...claim, command: yieldOf(ballot.us) });
    quorumServer.releaseLater({ ...claim, command: yieldOf(ballot.us + 1) });
    await until(() => isFree(admin, claim.key));
  });

  it('a tick is not marked after the time of its claim', () => {
    const quorum = quorumOf(createServers(['redis://one', 'redis://two', 'redis://three']));
    const tick = { tickMs: Date.now(), maxEarlyMs: 1_000, staleAfterMs: 60_000 };
    const claim = { key: randomUUID(), holder: randomUUID(), leaseMs: 30_000, instance: 'spec', tick };
    const concluded = (lateMs: number) => {
      const acquisition = new TickAcquisition(claim, quorum);
      const nowMs = systemClock.monotonicMs();
      for (const quorumServer of quorum.servers.all)
        acquisition.onReply(quorumServer, 'granted = - - -', Date.now() * 1_000);
      const pauseMs = acquisition.conclude({ ...END, sentAtMs: nowMs - END.timeoutMs - lateMs });
      return [pauseMs, acquisition.result?.kind];
    };
    expect(concluded(-400)).toEqual([0, undefined]);
    expect(concluded(1)).toEqual([undefined, 'unknown']);
  });

  it('a claim that has marked its tick on a minority is refused if the job was paused meanwhile', () => {
    const quorum = quorumOf(createServers(['redis://one', 'redis://two', 'redis://three']));
    const [one, two, three] = quorum.servers.all as [QuorumServer, QuorumServer, QuorumServer];
    const tick = { tickMs: Date.now(), maxEarlyMs: 1_000, staleAfterMs: 60_000 };
    const claim = { key: randomUUID(), holder: randomUUID(), leaseMs: 30_000, instance: 'spec', tick };
    const acquisition = new TickAcquisition(claim, quorum);
    const [timeUs, never, pause] = [Date.now() * 1_000, fixedWidth(0), `P${fixedWidth(1)}`];
    const conclude = () =>
      acquisition.conclude({ ...END, sentAtMs: systemClock.monotonicMs(), latestEndMs: Infinity });
    for (const each of [one, two, three]) acquisition.onReply(each, 'granted = - - - -', timeUs);
    conclude();
    expect(acquisition.command).toMatch(/^mark .* -$/);
    acquisition.onReply(one, 'marked', timeUs);
    for (const each of [two, three]) acquisition.onReply(each, 'lost', timeUs);
    conclude();
    const ours = `${fixedWidth(tick.tickMs * 1_000 + 1)} ${never} ${claim.holder} -`;
    const theirs = `${fixedWidth((tick.tickMs - 1) * 1_000)} ${never} - ${pause}`;
    acquisition.onReply(one, `granted = ${ours}`, timeUs);
    for (const each of [two, three]) acquisition.onReply(each, `granted = ${theirs}`, timeUs);
    expect(conclude()).toBeUndefined();
    expect(acquisition.result).toMatchObject({ kind: 'refused', reason: 'paused' });
  });

  it('a resumption ends a pause that one server has, even if the others know no tick of the job', async () => {
    const [one, two, three] = await Promise.all((await serve(3)).map(addressOf));
    const quorumServers = await openServers([one!, two!, three!].map(urlOf));
    const key = randomUUID();
    const timeouts = { timeoutMs: 5_000, serverLimitMs: 5_000, closed: quorumServers.closed };
    const pause = { key, holder: '', command: `pause P${fixedWidth(1)} 0 ${fixedWidth(1_000_000)}` };
    expect(await hasReply(quorumServers.all[0]!, new ServerCall([pause]))).toBe(true);
    one!.isOpen = false;
    await until(() => !quorumServers.all[0]!.hasVote);
    await setPaused(quorumServers, { key, isPaused: false }, timeouts);
    one!.isOpen = true;
    three!.isOpen = false;
    await until(() => isDeepStrictEqual(haveVotes(quorumServers), [true, true, false]));
    expect(await readTicks(quorumServers, key, timeouts)).not.toHaveProperty('isPaused');
  });

  it('a vote that arrives after the release of its lock is released too', async () => {
    const [server] = await serve(1);
    const quorumServers = await openServers([server!.url]);
    const [quorumServer, admin] = [quorumServers.all[0]!, adminOf(server!)];
    const claim = { key: randomUUID(), holder: randomUUID() };
    const quorum = quorumOf(quorumServers);
    quorum.pendingVotes.add(claim.holder, quorumServer.bit);
    new Release(claim, quorum);
    const call = new ServerCall([{ ...claim, command }], ballotOf(quorumServers));
    expect(await hasReply(quorumServer, call)).toBe(true);
    expect(await isFree(admin, claim.key)).toBe(false);
    await until(() => isFree(admin, claim.key));
  });

  describe('a release', () => {
    /** The result after these replies of five servers, one after the other, and whether it came before the others failed. */
    function resultAfter(...replies: readonly string[]) {
      const quorum = quorumOf(
        createServers(['one', 'two', 'three', 'four', 'five'].map((name) => `redis://${name}`)),
      );
      const { all } = quorum.servers;
      const release = new Release({ key: randomUUID(), holder: randomUUID() }, quorum);
      for (const [index, reply] of replies.entries()) {
        if (reply === 'uncounted') release.onUncountedReply(all[index]!);
        else if (reply !== 'none') release.onReply(all[index]!, reply);
      }
      const isEarly = release.isSettled;
      for (const quorumServer of all.slice(replies.length)) release.onNoReply(quorumServer, false);
      release.conclude(END);
      return [release.result?.kind, isEarly];
    }

    it('has its result as soon as a majority has released the lock', () => {
      expect(resultAfter('released', 'released', 'released')).toEqual(['released', true]);
    });

    it('waits for the other servers if one of the majority does not hold the lock', () => {
      expect(resultAfter('released', 'released', 'gone')).toEqual(['released', false]);
    });

    it('does not wait for a server without a vote', () => {
      expect(resultAfter('released', 'released', 'gone', 'gone', 'uncounted')).toEqual(['released', true]);
    });

    it('is `released` if one server has not replied in the end', () => {
      expect(resultAfter('released', 'released', 'gone', 'gone', 'none')).toEqual(['released', false]);
    });

    it('is `gone` if a majority does not hold the lock', () => {
      expect(resultAfter('released', 'released', 'gone', 'gone', 'gone')).toEqual(['gone', true]);
    });
  });

  it('an acquisition that has won remembers the servers that may still vote for it', () => {
    const quorum = quorumOf(createServers(['redis://one', 'redis://two', 'redis://three']));
    const { all, needed, allBits } = quorum.servers;
    const claim = { key: randomUUID(), holder: randomUUID() };
    const request = { ...claim, leaseMs: 30_000, instance: 'spec' };
    const [lateOne, ...others] = all;
    const acquire = () => {
      const acquisition = new Acquisition(request, { command, initialServers: allBits }, quorum);
      for (const quorumServer of others.slice(0, needed)) acquisition.onReply(quorumServer, 'granted', 1);
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
    /** A lock that two of three servers hold, and its renewal with their replies in this order. */
    async function renewedIn(quorum: Quorum, holdingServers: readonly QuorumServer[], leaseMs = 30_000) {
      const claim = { key: randomUUID(), holder: randomUUID() };
      const call = new ServerCall([{ ...claim, command }], ballotOf(quorum.servers));
      await Promise.all(holdingServers.map((quorumServer) => hasReply(quorumServer, call)));
      const renewal = new Renewal({ ...claim, leaseMs }, quorum, 0);
      for (const quorumServer of holdingServers) renewal.onReply(quorumServer, 'renewed');
      renewal.onReply(quorum.servers.all[2]!, 'lost');
      renewal.conclude(END);
      return renewal;
    }

    async function renewed() {
      const servers = await serve(3);
      const quorumServers = await openServers(servers.map(({ url }) => url));
      const quorum = quorumOf(quorumServers);
      const renewal = await renewedIn(quorum, quorumServers.all.slice(0, 2));
      const withoutLock = { quorumServer: quorumServers.all[2]!, admin: adminOf(servers[2]!) };
      return { quorum, renewal, withoutLock, key: renewal.key };
    }

    it('a server that lost the lock gets a copy', async () => {
      const { quorum, renewal, withoutLock, key } = await renewed();
      await renewal.repair(systemClock.monotonicMs());
      await until(async () => !(await isFree(withoutLock.admin, key)));
      await hasReply(withoutLock.quorumServer); // Its earlier reply has arrived by now.
      expect(quorum.pendingVotes.take(renewal.holder)).toBe(0);
    });

    it('a server that is full refuses the copy, and is sent the release later', async () => {
      const { quorum, renewal, withoutLock, key } = await renewed();
      await withoutLock.admin.config('SET', 'maxmemory', '1');
      await renewal.repair(systemClock.monotonicMs());
      await hasReply(withoutLock.quorumServer); // Its earlier reply has arrived by now.
      expect(await isFree(withoutLock.admin, key)).toBe(true);
      expect(quorum.pendingVotes.take(renewal.holder)).toBe(withoutLock.quorumServer.bit);
    });

    it('a copy of a run expires when the tick expires on the other servers', async () => {
      const { quorum, renewal, withoutLock, key } = await renewed();
      const mark = `mark ${fixedWidth(Date.now() * 1_000 + 1)} 1000000 -`;
      const call = new ServerCall([{ key, holder: renewal.holder, command: mark }]);
      await Promise.all(quorum.servers.all.slice(0, 2).map((quorumServer) => hasReply(quorumServer, call)));
      await renewal.repair(systemClock.monotonicMs());
      await until(async () => !(await isFree(withoutLock.admin, key)));
      const expiresInMs = await withoutLock.admin.pttl(voteKeyOf(key));
      expect(expiresInMs).toBeLessThanOrEqual(1_000_000);
      expect(expiresInMs).toBeGreaterThan(500_000);
    });

    it('a copy is released if the lock is released while the copy is sent', async () => {
      const { quorum, renewal, withoutLock, key } = await renewed();
      await renewal.repair(systemClock.monotonicMs());
      new Release(renewal, quorum);
      await hasReply(withoutLock.quorumServer); // Earlier calls have arrived by now.
      await until(() => isFree(withoutLock.admin, key));
    });

    it('no copy is sent if the lock was released before', async () => {
      const { quorum, renewal, withoutLock, key } = await renewed();
      const repaired = renewal.repair(systemClock.monotonicMs());
      new Release(renewal, quorum);
      await repaired;
      await hasReply(withoutLock.quorumServer);
      expect(await isFree(withoutLock.admin, key)).toBe(true);
    });

    it('a server gets a copy even if one of two repairs is too late', async () => {
      const { renewal, withoutLock, key } = await renewed();
      const nowMs = systemClock.monotonicMs();
      const late = renewal.repair(nowMs - 15_001);
      await Promise.all([late, renewal.repair(nowMs)]);
      await until(async () => !(await isFree(withoutLock.admin, key)));
    });

    it('a server gets a copy even if another lock was only checked with a very short lease', async () => {
      const { quorum, renewal, withoutLock, key } = await renewed();
      const check = await renewedIn(quorum, quorum.servers.all.slice(0, 2), 10);
      const nowMs = systemClock.monotonicMs();
      await Promise.all([renewal.repair(nowMs), check.repair(nowMs - 20)]);
      await until(async () => !(await isFree(withoutLock.admin, key)));
    });

    it('no copy is sent after half of the lease', async () => {
      const { quorum, renewal, withoutLock, key } = await renewed();
      await renewal.repair(systemClock.monotonicMs() - 15_001);
      await hasReply(withoutLock.quorumServer); // Earlier calls have arrived by now.
      expect(await isFree(withoutLock.admin, key)).toBe(true);
      expect(quorum.pendingVotes.take(renewal.holder)).toBe(0);
    });

    it('a server that does not reply with its copy does not block the copies of others', async () => {
      const { quorum, renewal, withoutLock, key } = await renewed();
      const { all } = quorum.servers;
      const other = await renewedIn(quorum, all.slice(0, 2).reverse());
      all[0]!.close();
      const nowMs = systemClock.monotonicMs();
      await Promise.all([renewal.repair(nowMs), other.repair(nowMs)]);
      await until(async () => !(await isFree(withoutLock.admin, other.key)));
      expect(await isFree(withoutLock.admin, key)).toBe(true);
    });
  });
});
