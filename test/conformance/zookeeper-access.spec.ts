import { once } from 'node:events';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { zookeeperBackend } from '../../lib/backends/zookeeper/index.js';
import { LockConfigError, LockUnavailableError } from '../../lib/core/errors.js';
import { createCertificates, type Certificates } from '../services/certificates.js';
import { freePort } from '../services/free-port.js';
import type { Service } from '../services/service.js';
import { TICK_TIME_MS, fourLetters, startZookeeper } from '../services/zookeeper.js';
import { bareLocks } from '../support/bare-locks.js';
import { tempFolder } from '../support/temp-folder.js';

const SECRET = 'open sesame@xyzzy';
const TELLING = /sesame|xyzzy/;
const CHECK_MS = 10_000;
const shown = (value: unknown) => inspect(value, { depth: 20, maxStringLength: Infinity });
const tick = { tickTimeMs: TICK_TIME_MS };

describe('a ZooKeeper with users', () => {
  let server: Service;
  const auth = { user: 'app', password: SECRET };

  beforeAll(async () => {
    server = await startZookeeper();
    const backend = zookeeperBackend({ servers: server.url, ...tick, auth });
    await backend.check(CHECK_MS);
    await backend.close();
  }, 60_000);
  afterAll(() => server.stop());

  it('keeps locks of the user that has created the nodes', async () => {
    const backend = zookeeperBackend({ servers: server.url, ...tick, auth });
    const locks = bareLocks({ backend, namespace: 'users' });
    const [lock, waiting] = [await locks.acquire('key'), locks.acquire('key')];
    await lock.release();
    expect((await waiting).fencingToken).toBeGreaterThan(lock.fencingToken);
    await locks.close();
  });

  it('keeps locks of everybody in nodes that an ACL opens', async () => {
    const acl = [
      { scheme: 'auth', id: '' },
      { scheme: 'world', id: 'anyone', permissions: 'crwd' },
    ];
    const options = { servers: server.url, ...tick, path: '/opened/by-acl' };
    for (const backend of [zookeeperBackend({ ...options, auth, acl }), zookeeperBackend(options)]) {
      const locks = bareLocks({ backend, namespace: 'opened' });
      await (await locks.acquire('key')).release();
      await locks.close();
    }
  });

  it.each([
    ['another password', { auth: { user: 'app', password: `${SECRET}!` } }],
    ['no user', {}],
  ])('refuses %s with a LockConfigError that does not contain the password', async (_, options) => {
    const backend = zookeeperBackend({ servers: server.url, ...tick, ...options });
    const error: unknown = await backend.check(CHECK_MS).then(
      () => undefined,
      (cause: unknown) => cause,
    );
    expect(error).toBeInstanceOf(LockConfigError);
    expect(String(error)).toMatch(
      /denies access to "\/nestjs-distributed-lock".*check options.auth, and the ACL/,
    );
    const locks = bareLocks({ backend, namespace: 'users' });
    const refusal: unknown = await locks.acquire('key').catch((cause: unknown) => cause);
    expect(refusal).toBeInstanceOf(LockConfigError);
    expect(shown([error, refusal])).not.toMatch(TELLING);
    await locks.close();
  });

  it('refuses a session timeout that its servers do not grant', async () => {
    const sessionTimeoutMs = 2_000_000_000;
    const backend = zookeeperBackend({ servers: server.url, ...tick, auth, sessionTimeoutMs });
    await expect(backend.check(CHECK_MS)).rejects.toThrow(
      /ends sessions after at most 1000000000 ms, but options.sessionTimeoutMs is 2000000000/,
    );
    await backend.close();
  });

  it('tries to get such a session again in the same session', async () => {
    const sessionsOf = async () =>
      Number(/zk_global_sessions\t(\d+)/.exec(await fourLetters(server.url, 'mntr'))?.[1]);
    const backend = zookeeperBackend({ servers: server.url, ...tick, auth, sessionTimeoutMs: 2_000_000_000 });
    const before = await sessionsOf();
    for (let tries = 0; tries < 3; tries += 1) {
      await expect(backend.check(CHECK_MS)).rejects.toThrow(/ends sessions after at most/);
    }
    expect(await sessionsOf()).toBe(before + 1);
    await backend.close();
  });
});

describe('a ZooKeeper with certificates', () => {
  const folder = tempFolder();
  let certificates: Certificates;
  let server: Service;

  beforeAll(async () => {
    certificates = await createCertificates(folder);
    const { caFile, certificateFile, keyFile } = certificates;
    const [store, trusted] = [join(folder, 'server.p12'), join(folder, 'trusted.pem')];
    const password = ['-passout', `pass:${SECRET}`];
    await execa('openssl', [
      ...['pkcs12', '-export', '-in', certificateFile, '-inkey', keyFile, '-out', store, ...password],
    ]);
    await execa('cp', [caFile, trusted]);
    const port = await freePort();
    const config = [
      ...[`secureClientPort=${port}`, 'secureClientPortAddress=127.0.0.1'],
      'serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory',
      ...[`ssl.keyStore.location=${store}`, 'ssl.keyStore.type=PKCS12', `ssl.keyStore.password=${SECRET}`],
      ...[`ssl.trustStore.location=${trusted}`, 'ssl.trustStore.type=PEM', 'ssl.clientAuth=need'],
      'ssl.hostnameVerification=false',
    ];
    server = await startZookeeper({ port }, { config });
  }, 60_000);
  afterAll(() => server.stop());

  it('keeps locks of a client with a certificate', async () => {
    const { ca, key, certificate } = certificates;
    const tls = { ca, key, cert: certificate };
    const backend = zookeeperBackend({ servers: server.url, ...tick, tls });
    await backend.check(CHECK_MS);
    const locks = bareLocks({ backend, namespace: 'tls' });
    const lock = await locks.acquire('key');
    await lock.release();
    await locks.close();
  });

  it.each([
    ['without a certificate of its own', () => ({ tls: { ca: certificates.ca } })],
    ['that does not trust the server', () => ({ tls: true })],
    ['without TLS', () => ({})],
  ])('is unavailable to a client %s', async (_, optionsOf) => {
    const backend = zookeeperBackend({ servers: server.url, ...tick, ...optionsOf() });
    const locks = bareLocks({ backend, namespace: 'tls' });
    await expect(locks.acquire('key', { waitMs: 0 })).rejects.toThrow(LockUnavailableError);
    await locks.close();
  });
});

describe('a ZooKeeper that is not there', () => {
  it('is unavailable, also if its host never answers, or is another server', async () => {
    const nonsense = ['', '\0\0\0\u0004abcd', 'HTTP/1.1 400 Bad Request'];
    const servers = nonsense.map((answer) =>
      createServer((socket) => socket.on('error', () => undefined).write(answer)).listen(0, '127.0.0.1'),
    );
    await Promise.all(servers.map((one) => once(one, 'listening')));
    const ports = servers.map((one) => (one.address() as { port: number }).port);
    for (const one of [...ports, await freePort()]) {
      const backend = zookeeperBackend({ servers: `127.0.0.1:${one}` });
      const locks = bareLocks({ backend, namespace: 'away' });
      await expect(locks.acquire('key', { waitMs: 200 })).rejects.toThrow(LockUnavailableError);
      await locks.close();
    }
    for (const one of servers) one.close();
  });
});

describe('options of zookeeperBackend', () => {
  const cases: [unknown, RegExp][] = [
    [undefined, /expected options to be an object, got null/],
    [{}, /expected options.servers to be 'host:port', got undefined/],
    [{ servers: [] }, /at least one server, got an empty array/],
    [{ servers: 'a:1, b:65536' }, /expected options.servers to be 'host:port', got another text/],
    [{ servers: ['a:1', 2] }, /expected options.servers\[1\] to be 'host:port', got 2/],
    [{ servers: `zk://root:${SECRET}@a:1` }, /expected options.servers to be 'host:port', got another text/],
    [{ servers: 'a:1,b:2/chroot' }, /expected options.servers to be 'host:port', got another text/],
    [{ servers: 'a:1', sessionTimeoutMs: 15_999 }, /sessionTimeoutMs to be a whole number .* from 16000/],
    [{ servers: 'a:1', tickTimeMs: 0 }, /tickTimeMs to be a whole number .* from 1/],
    [{ servers: 'a:1', auth: { user: 'app' } }, /options.auth.password to be a text, got undefined/],
    [
      { servers: 'a:1', auth: { user: 'a:b', password: SECRET } },
      /options.auth.user .* got one with a colon/,
    ],
    [{ servers: 'a:1', auth: { user: '', password: SECRET } }, /options.auth.user .* got an empty text/],
    [{ servers: 'a:1', acl: [] }, /options.acl to be a list/],
    [{ servers: 'a:1', acl: [{ scheme: 'digest', id: 7 }] }, /options.acl\[0\].id to be a text, got 7/],
    [{ servers: 'a:1', acl: [{ scheme: 'auth', id: '', permissions: 'x' }] }, /letters cdrwa/],
    [{ servers: 'a:1', tls: 'yes' }, /options.tls to be true, or options/],
    [{ servers: 'a:1', path: 'locks' }, /options.path to be a path/],
    [{ servers: 'a:1', path: '/a/../b' }, /options.path to be a path/],
    [{ servers: 'a:1', username: 'app' }, /options has no option 'username'/],
  ];
  it.each(cases)('%j are refused', (options, reason) => {
    const create = () => zookeeperBackend(options as { servers: string });
    expect(create).toThrow(LockConfigError);
    expect(create).toThrow(reason);
    expect(create).not.toThrow(TELLING);
  });

  it('several servers and IPv6 addresses are accepted, and the longest lease follows the session', () => {
    for (const servers of ['a:2181', 'a:1,b:2', ['a:1', 'b:2'], '[::1]:2181'])
      expect(zookeeperBackend({ servers }).maxLeaseMs).toBe(30_000);
    expect(zookeeperBackend({ servers: 'a:1', sessionTimeoutMs: 20_000 }).maxLeaseMs).toBe(15_000);
  });
});
