import { once } from 'node:events';
import { createServer } from 'node:net';
import { inspect } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ChannelCredentials } from '@grpc/grpc-js';
import { etcdBackend } from '../../lib/backends/etcd/index.js';
import { LockConfigError, LockUnavailableError } from '../../lib/core/errors.js';
import { createCertificates, type Certificates } from '../services/certificates.js';
import { etcdctl, startEtcd } from '../services/etcd.js';
import { freePort } from '../services/free-port.js';
import type { Service } from '../services/service.js';
import { bareLocks } from '../support/bare-locks.js';
import { hostOf } from '../support/etcd.js';
import { tempFolder } from '../support/temp-folder.js';

const SECRET = 'open sesame@xyzzy';
const TELLING = /sesame|xyzzy/;
const CHECK_MS = 10_000;
const shown = (value: unknown) => inspect(value, { depth: 20, maxStringLength: Infinity });

describe('an etcd with users', () => {
  let server: Service;
  const auth = { user: 'app', password: SECRET };

  beforeAll(async () => {
    server = await startEtcd();
    const run = (...args: string[]) => etcdctl(`--endpoints=${hostOf(server.url)}`, ...args);
    await run('user', 'add', `root:${SECRET}`);
    await run('user', 'grant-role', 'root', 'root').catch(() => run('role', 'add', 'root'));
    await run('user', 'grant-role', 'root', 'root');
    await run('user', 'add', `app:${SECRET}`);
    await run('role', 'add', 'locks');
    await run('role', 'grant-permission', 'locks', '--prefix=true', 'readwrite', 'nestjs-distributed-lock/');
    await run('user', 'grant-role', 'app', 'locks');
    await run('auth', 'enable');
  }, 60_000);
  afterAll(() => server.stop());

  it('keeps locks of a user whose role has the prefix', async () => {
    const backend = etcdBackend({ hosts: server.url, auth });
    await backend.check(CHECK_MS);
    const locks = bareLocks({ backend, namespace: 'users' });
    const [lock, waiting] = [await locks.acquire('key'), locks.acquire('key')];
    await lock.release();
    expect((await waiting).fencingToken).toBeGreaterThan(lock.fencingToken);
    await locks.close();
  });

  it.each([
    [
      'a wrong password',
      { auth: { user: 'app', password: `${SECRET}!` } },
      /rejects the user or the password/,
    ],
    ['no user', {}, /rejects the user or the password, or requires them/],
    [
      'a prefix without permission',
      { auth, keyPrefix: 'elsewhere/' },
      /denies access to the keys .*"elsewhere\/"/,
    ],
  ])('refuses %s with a LockConfigError that does not contain the password', async (_, options, reason) => {
    const backend = etcdBackend({ hosts: server.url, ...options });
    const error: unknown = await backend.check(CHECK_MS).then(
      () => undefined,
      (cause: unknown) => cause,
    );
    expect(error).toBeInstanceOf(LockConfigError);
    expect(String(error)).toMatch(reason);
    const locks = bareLocks({ backend, namespace: 'users' });
    const refusal: unknown = await locks.acquire('key').catch((cause: unknown) => cause);
    expect(refusal).toBeInstanceOf(LockConfigError);
    expect(shown([error, refusal])).not.toMatch(TELLING);
    await locks.close();
  });
});

describe('an etcd with certificates', () => {
  const folder = tempFolder();
  let certificates: Certificates;
  let server: Service;

  beforeAll(async () => {
    certificates = await createCertificates(folder);
    const { caFile, certificateFile, keyFile } = certificates;
    const tls = ['--cert-file', certificateFile, '--key-file', keyFile, '--trusted-ca-file', caFile];
    server = await startEtcd({ args: [...tls, '--client-cert-auth'] }, 'https');
  }, 60_000);
  afterAll(() => server.stop());

  it('keeps locks of a client with a certificate', async () => {
    const { ca, key, certificate } = certificates;
    const credentials = ChannelCredentials.createSsl(ca, key, certificate);
    const backend = etcdBackend({ hosts: hostOf(server.url), credentials });
    await backend.check(CHECK_MS);
    const locks = bareLocks({ backend, namespace: 'tls' });
    const lock = await locks.acquire('key');
    await lock.release();
    await locks.close();
  });

  it.each([
    ['without a certificate of its own', () => ChannelCredentials.createSsl(certificates.ca)],
    ['that does not trust the server', () => ChannelCredentials.createSsl()],
    ['without TLS', () => ChannelCredentials.createInsecure()],
  ])('is unavailable to a client %s', async (_, credentialsOf) => {
    const backend = etcdBackend({ hosts: hostOf(server.url), credentials: credentialsOf() });
    const locks = bareLocks({ backend, namespace: 'tls' });
    await expect(locks.acquire('key', { waitMs: 0 })).rejects.toThrow(LockUnavailableError);
    await locks.close();
  });
});

describe('an etcd that is not there', () => {
  it('is unavailable, also if its host never answers', async () => {
    const silent = createServer(() => undefined).listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const { port } = silent.address() as { port: number };
    for (const one of [port, await freePort()]) {
      const locks = bareLocks({ backend: etcdBackend({ hosts: `127.0.0.1:${one}` }), namespace: 'away' });
      await expect(locks.acquire('key', { waitMs: 200 })).rejects.toThrow(LockUnavailableError);
      await locks.close();
    }
    silent.close();
  });
});

describe('options of etcdBackend', () => {
  const cases: [unknown, RegExp][] = [
    [undefined, /expected options to be an object, got null/],
    [{}, /expected options.hosts to be 'host:port', got undefined/],
    [{ hosts: [] }, /at least one host, got an empty array/],
    [{ hosts: 'a:65536' }, /expected options.hosts to be 'host:port', got another text/],
    [{ hosts: ['a:1', 2] }, /expected options.hosts\[1\] to be 'host:port', got 2/],
    [{ hosts: `http://root:${SECRET}@a:1` }, /expected options.hosts to be 'host:port', got another text/],
    [{ hosts: ['https://a:1', 'http://b:1'] }, /all of options.hosts to start with https/],
    [{ hosts: 'a:1', credentials: SECRET }, /expected options.credentials to be ChannelCredentials/],
    [{ hosts: 'a:1', auth: { user: 'app' } }, /options.auth.password to be a text, got undefined/],
    [
      { hosts: 'a:1', auth: { user: '', password: SECRET } },
      /options.auth.user to be a text, got an empty text/,
    ],
    [{ hosts: 'a:1', keyPrefix: '' }, /options.keyPrefix/],
    [{ hosts: 'a:1', username: 'app' }, /options has no option 'username'/],
  ];
  it.each(cases)('%j are refused', (options, reason) => {
    const create = () => etcdBackend(options as { hosts: string });
    expect(create).toThrow(LockConfigError);
    expect(create).toThrow(reason);
    expect(create).not.toThrow(TELLING);
  });

  it('several hosts, schemes and IPv6 addresses are accepted', () => {
    for (const hosts of ['a:2379', ['http://a:1', 'http://b:2/'], ['https://a:1'], '[::1]:2379'])
      expect(etcdBackend({ hosts }).name).toBe('etcd');
  });
});
