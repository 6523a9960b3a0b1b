import { join } from 'node:path';
import { execa } from 'execa';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { type EtcdBackend, etcdBackend } from '../../lib/backends/etcd/index.js';
import type { AcquisitionId } from '../../lib/core/backend.js';
import { createAcquireRequest, createAcquisitionId } from '../../lib/testing/laws/law.js';
import { etcdctl, startEtcd } from '../services/etcd.js';
import type { Service } from '../services/service.js';
import { hostOf } from '../support/etcd.js';
import { tempFolder } from '../support/temp-folder.js';
import { until } from '../support/until.js';

const TIMEOUT_MS = 10_000;
const PASSWORD = 'open sesame';
const folder = tempFolder();
const asUser = { user: 'app', password: PASSWORD };
let server: Service;
const opened: EtcdBackend[] = [];

const etcdctlAsRoot = (...args: string[]) =>
  etcdctl(`--endpoints=${hostOf(server.url)}`, `--user=root:${PASSWORD}`, ...args);

/** Ends all tokens: each change of a role or user does. */
const changeRoles = (key: string) => etcdctlAsRoot('role', 'grant-permission', 'another', 'read', key);

const open = () => {
  const backend = etcdBackend({ hosts: server.url, auth: asUser });
  opened.push(backend);
  return backend;
};

const acquire = async (backend: EtcdBackend, acquisition: AcquisitionId) => {
  const request = createAcquireRequest(acquisition, { leaseMs: 60_000, retryWithinMs: 60_000 });
  return (await backend.execute({ acquire: [request] }, TIMEOUT_MS)).acquire[0];
};

/** How many watches etcd has open. */
async function countWatchers(): Promise<number> {
  const metrics = await (await fetch(`${server.url}/metrics`)).text();
  return Number(/^etcd_debugging_mvcc_watcher_total (\d+)$/m.exec(metrics)?.[1]);
}

/** Its tokens end with each change of a user or role. */
async function startWithTokens(): Promise<Service> {
  const [privateKey, publicKey] = [join(folder, 'private.pem'), join(folder, 'public.pem')];
  await execa('openssl', ['genrsa', '-out', privateKey, '2048']);
  await execa('openssl', ['rsa', '-in', privateKey, '-pubout', '-out', publicKey]);
  const tokens = `jwt,pub-key=${publicKey},priv-key=${privateKey},sign-method=RS256,ttl=1h`;
  return startEtcd({ args: ['--auth-token', tokens] });
}

beforeAll(async () => {
  server = await startWithTokens();
  for (const name of ['root', 'app', 'another']) {
    await etcdctlAsRoot('user', 'add', `${name}:${PASSWORD}`);
    await etcdctlAsRoot('role', 'add', name);
    await etcdctlAsRoot('user', 'grant-role', name, name);
  }
  await etcdctlAsRoot('role', 'grant-permission', 'app', '--prefix=true', 'readwrite', 'nestjs-');
}, 60_000);
afterEach(() => Promise.all(opened.splice(0).map((backend) => backend.close())));
afterAll(() => server.stop());

it('a backend with a user works before and after users are enabled, and after roles have changed', async () => {
  const backend = open();
  expect((await acquire(backend, createAcquisitionId('before')))?.kind).toBe('granted');
  await etcdctlAsRoot('auth', 'enable');
  expect((await acquire(backend, createAcquisitionId('enabled')))?.kind).toBe('granted');
  await changeRoles('elsewhere');
  expect((await acquire(backend, createAcquisitionId('changed')))?.kind).toBe('granted');
}, 60_000);

it('a waiter is notified although the token of the first watch has ended', async () => {
  await etcdctlAsRoot('auth', 'enable');
  const [holder, waiter] = [open(), open()];
  const waiting = new Map<string, AcquisitionId>();
  const granted: string[] = [];
  const ask = async (key: string, acquisition: AcquisitionId) => {
    if ((await acquire(waiter, acquisition))?.kind !== 'granted') return;
    granted.push(key);
    waiting.delete(key);
  };
  waiter.onReleased((notice) => {
    for (const [key, acquisition] of waiting)
      if (notice.key === undefined || notice.key === key) void ask(key, acquisition);
  });
  const held = ['first', 'second'].map(createAcquisitionId);
  for (const [index, acquisition] of held.entries()) {
    const { key } = acquisition;
    expect((await acquire(holder, acquisition))?.kind).toBe('granted');
    waiting.set(key, createAcquisitionId(key));
    await ask(key, waiting.get(key) as AcquisitionId);
    await until(async () => (await countWatchers()) === index + 1);
    // The token of the stream ends with it.
    if (index === 0) await changeRoles('anywhere');
  }
  await holder.execute({ release: held }, TIMEOUT_MS);
  await until(() => granted.length === held.length);
  expect(granted.sort()).toEqual(['first', 'second']);
}, 60_000);
