import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, expect, it, jest } from '@jest/globals';
import { Test } from '@nestjs/testing';
import { type Browser, type Page, chromium } from 'playwright-core';
import { redisBackend } from '../../lib/backends/redis/index.js';
import { DistributedLockModule, LockService } from '../../lib/index.js';
import { type Worker, endAllWorkers, startTestFile } from '../cluster/start-worker.js';
import { startRedis } from '../services/redis-server.js';
import { serviceUrl } from '../support/environment.js';
import { until } from '../support/until.js';
import { startBalancer } from './balancer.js';

// Two replicas and a browser start for each test.
jest.setTimeout(120_000);

let browser: Browser;
const ends: (() => unknown)[] = [];

beforeAll(async () => {
  // The sandbox of Chromium needs more rights than a container has. It loads our own page only.
  browser = await chromium.launch({ executablePath: serviceUrl('TEST_CHROMIUM'), args: ['--no-sandbox'] });
});
afterAll(() => browser.close());
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
  await endAllWorkers();
});

interface Scene {
  /** The page of both replicas, behind one address. */
  readonly url: string;
  readonly replicas: readonly Worker<{ port: number }>[];
  /** Replicas without a page, which hold locks and wait for them. */
  readonly locks: LockService;
  readonly others: LockService;
}

async function startScene(redis = serviceUrl('TEST_REDIS_URL')): Promise<Scene> {
  const namespace = randomUUID();
  const replicas = ['one', 'two'].map((instance) =>
    startTestFile<{ port: number }>('browser/workers/board-replica', { redis, namespace, instance }),
  );
  const locks = await bootLocks({ redis, namespace, instance: 'holder' });
  const others = await bootLocks({ redis, namespace, instance: 'waiter' });
  await until(() => replicas.every(({ messages }) => messages.length > 0));
  const balancer = await startBalancer(replicas.map(({ messages }) => messages[0]!.port));
  ends.push(balancer.close);
  return { url: `${balancer.url}/admin/locks`, replicas, locks, others };
}

async function bootLocks({ redis, ...options }: Record<'redis' | 'namespace' | 'instance', string>) {
  const backend = redisBackend({ url: redis });
  const shutdown = { drainMs: 0, abortGraceMs: 0 };
  const imports = [DistributedLockModule.forRoot({ ...options, backend, shutdown })];
  const app = await Test.createTestingModule({ imports }).compile();
  await app.init();
  ends.push(() => app.close());
  return app.get(LockService);
}

/** Opens the page with the cookie of an admin, and waits until it is live. */
async function openBoard(url: string): Promise<Page> {
  const context = await browser.newContext();
  ends.push(() => context.close());
  await context.addCookies([{ name: 'user', value: 'admin', url }]);
  const page = await context.newPage();
  await page.goto(url);
  await page.locator('.state[data-state=live]').waitFor();
  return page;
}

const rowOf = (page: Page, key: string) =>
  page.locator('#lock-table tbody tr', { has: page.locator('.key', { hasText: key }) });
const stateOf = (page: Page, state: string) => page.locator(`.state[data-state=${state}]`);
const keysOf = (page: Page) => page.locator('#lock-table tbody .key').allTextContents();

it('shows a lock after its grant, its waiters, and its end', async () => {
  const { url, locks, others } = await startScene();
  const page = await openBoard(url);
  const lock = await locks.acquire('order:42');
  const row = rowOf(page, 'order:42');
  await row.waitFor();
  expect(await row.locator('.instance').textContent()).toBe('holder');
  expect(await row.locator('.token').textContent()).toBe(String(lock.fencingToken));
  const stopWaiting = new AbortController();
  const waiting = others.acquire('order:42', { signal: stopWaiting.signal }).catch(() => undefined);
  await row.locator('.waiting', { hasText: '1' }).waitFor();
  stopWaiting.abort();
  await waiting;
  await lock.release();
  await until(async () => (await keysOf(page)).length === 0);
});

it('releases a lock, but only after a confirmation', async () => {
  const { url, locks } = await startScene();
  const page = await openBoard(url);
  await locks.acquire('stuck', { renew: false });
  const row = rowOf(page, 'stuck');
  await row.getByRole('button', { name: 'Release stuck' }).click();
  await page.getByRole('button', { name: 'Keep it' }).click();
  expect(await locks.inspect('stuck')).not.toBeNull();
  await row.getByRole('button', { name: 'Release stuck' }).click();
  expect(await page.locator('#confirm-key').textContent()).toBe('stuck');
  await page.getByRole('button', { name: 'Release the lock' }).click();
  await page.getByText('The lock was released.').waitFor();
  expect(await locks.inspect('stuck')).toBeNull();
});

it('does not release the grant of another holder', async () => {
  const { url, locks } = await startScene();
  const page = await openBoard(url);
  const first = await locks.acquire('report');
  await rowOf(page, 'report').getByRole('button', { name: 'Release report' }).click();
  await first.release();
  const second = await locks.acquire('report');
  await page.getByRole('button', { name: 'Release the lock' }).click();
  await page.getByText('this holder no longer has the lock').waitFor();
  expect((await locks.inspect('report'))?.fencingToken).toBe(second.fencingToken);
});

it('finds one of 10,000 locks by the start of its key, and turns pages', async () => {
  const { url, locks } = await startScene();
  const keys = Array.from({ length: 10_000 }, (_, index) => `stock:${index}`);
  await Promise.all([...keys, 'order:42'].map((key) => locks.acquire(key, { leaseMs: 600_000 })));
  const page = await openBoard(url);
  await page.getByText('page 1, 100 locks').waitFor();
  await page.getByRole('button', { name: 'Next' }).click();
  await page.getByText('page 2, 100 locks').waitFor();
  await page.keyboard.press('/');
  await page.keyboard.type('order:');
  await page.getByText('1 lock', { exact: true }).waitFor();
  expect(await keysOf(page)).toEqual(['order:42']);
  await page.keyboard.press('Control+A');
  await page.keyboard.type('stock:77');
  await until(async () => {
    const shown = await keysOf(page);
    return shown.length > 50 && shown.every((key) => key.startsWith('stock:77'));
  });
});

it('reconnects when the replica behind it is killed', async () => {
  const { url, locks, replicas } = await startScene();
  const page = await openBoard(url);
  expect(await page.locator('#replica').textContent()).toBe('of one');
  replicas[0]!.process.kill('SIGKILL');
  await page.getByText('of two').waitFor();
  await locks.acquire('after the kill');
  await rowOf(page, 'after the kill').waitFor();
  expect(await stateOf(page, 'live').count()).toBe(1);
  replicas[1]!.process.kill('SIGKILL');
  await stateOf(page, 'disconnected').waitFor();
  expect(await page.locator('#state').textContent()).toMatch(/Reconnecting … Below is what was known at/);
  expect(await keysOf(page)).toEqual(['after the kill']);
});

it('a store that is down is shown as such, and so is its return', async () => {
  const server = await startRedis();
  ends.push(() => server.stop());
  const { url, locks } = await startScene(server.url);
  await locks.acquire('kept in view', { leaseMs: 600_000 });
  const page = await openBoard(url);
  await rowOf(page, 'kept in view').waitFor();
  server.kill('SIGKILL');
  await server.exited;
  await stateOf(page, 'down').waitFor();
  expect(await page.locator('#state').textContent()).toMatch(/^Store down\. The lock store /);
  expect(await keysOf(page)).toEqual(['kept in view']);
  const again = await startRedis({ port: server.port });
  ends.push(() => again.stop());
  await stateOf(page, 'live').waitFor();
});

it('hostile keys are text', async () => {
  const { url, locks } = await startScene();
  const page = await openBoard(url);
  const faults: string[] = [];
  page.on('dialog', (dialog) => void faults.push(dialog.message()));
  page.on('console', (message) => message.type() === 'error' && void faults.push(message.text()));
  page.on('pageerror', (error) => void faults.push(error.message));
  const html = '<img src=x onerror=alert(1)>';
  const keys = [
    html,
    '"><script>alert(1)</script>',
    'k'.repeat(512),
    '🔒🧾',
    'مرحبا:طلب',
    '{{base}}',
    '__proto__',
  ];
  await Promise.all([...keys, 'a\u202eb\nc', 'd\u2028e'].map((key) => locks.acquire(key)));
  await until(async () => (await keysOf(page)).length === keys.length + 2);
  expect(new Set(await keysOf(page))).toEqual(new Set([...keys, 'a‹U+202E›b‹U+000A›c', 'd‹U+2028›e']));
  expect(await page.locator('#lock-table :is(img, script)').count()).toBe(0);
  await rowOf(page, html).getByRole('button').click();
  expect(await page.locator('#confirm-key').textContent()).toBe(html);
  // The page is no wider than the window.
  for (const width of [390, 900, 1440]) {
    await page.setViewportSize({ width, height: 800 });
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(width);
  }
  expect(faults).toEqual([]);
});

it('the guard holds, and the page says when it refuses', async () => {
  const { url } = await startScene();
  const stranger = await browser.newContext();
  ends.push(() => stranger.close());
  const refused = await stranger.newPage();
  expect((await refused.goto(url))!.status()).toBe(401);
  await stranger.addCookies([{ name: 'user', value: 'guest', url }]);
  expect((await refused.goto(url))!.status()).toBe(403);
  const page = await openBoard(url);
  await page.context().clearCookies();
  await page.evaluate("dispatchEvent(new Event('online'))");
  await page.getByText('Access refused (401)').waitFor();
});
