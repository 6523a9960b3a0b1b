import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { Page, Route } from 'playwright-core';
import { startRedis } from '../services/redis-server.js';
import { until } from '../support/until.js';
import { installNest11Replica, removeNest11Replica } from './nest-11-replica.js';
import {
  type BoardServer,
  ends,
  newContext,
  openBoard,
  openScene,
  rowOf,
  startReplicas,
  useBrowser,
} from './scene.js';

// Replicas and a browser start for it.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });
useBrowser();
afterAll(removeNest11Replica);

const stateOf = (page: Page, state: string) => page.locator(`.state[data-state=${state}]`);
const keysOf = (page: Page) => page.locator('#lock-table tbody .key').allTextContents();

/** With both adapters and both versions of Nest, in two runs instead of four. */
const SERVERS = [
  { adapter: 'Express', nest: 11 },
  { adapter: 'Fastify', nest: 12 },
] as const;

describe.each(SERVERS)('on $adapter and Nest $nest', ({ adapter, nest }) => {
  let server: BoardServer;
  let replicas: Awaited<ReturnType<typeof startReplicas>>;
  beforeAll(async () => {
    server = { adapter, file: nest === 11 ? await installNest11Replica() : undefined };
    replicas = await startReplicas(server);
  });
  afterAll(() => replicas.stop());

  it('shows a lock after its grant, its waiters, and its end', async () => {
    const { url, others, hold } = await openScene(replicas);
    const page = await openBoard(url);
    const lock = await hold('order:42');
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

  it('shows each permit of a key in a row of its own', async () => {
    const { url, locks, hold } = await openScene(replicas);
    const page = await openBoard(url);
    for (let count = 0; count < 3; count += 1) await hold('pdf', { permits: 3, renew: false });
    const permits = page.locator('#lock-table tbody tr:not(.gone) .permit');
    const shown = async () => (await permits.allTextContents()).sort();
    await until(async () => (await shown()).length === 3);
    expect(await shown()).toEqual(['permit 0', 'permit 1', 'permit 2']);
    await page.getByRole('button', { name: 'Release pdf, permit 1' }).click();
    expect(await page.locator('#confirm-detail').textContent()).toContain('permit 1');
    await page.getByRole('button', { name: 'Release the lock' }).click();
    await page.getByText('The lock was released.').waitFor();
    expect((await locks.inspect('pdf'))?.holders?.map(({ permit }) => permit)).toEqual([0, 2]);
    await until(async () => (await shown()).join() === 'permit 0,permit 2');
  });

  it('releases a lock, but only after a confirmation', async () => {
    const { url, locks, hold } = await openScene(replicas);
    const page = await openBoard(url);
    await hold('stuck', { renew: false });
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
    const { url, locks, hold } = await openScene(replicas);
    const page = await openBoard(url);
    const first = await hold('report');
    await rowOf(page, 'report').getByRole('button', { name: 'Release report' }).click();
    await first.release();
    const second = await hold('report');
    await page.getByRole('button', { name: 'Release the lock' }).click();
    await page.getByText('this holder no longer has the lock').waitFor();
    expect((await locks.inspect('report'))?.fencingToken).toBe(second.fencingToken);
  });

  it('finds one of 10,000 locks by the start of its key, and turns pages', async () => {
    const { url, hold } = await openScene(replicas);
    await hold('order:42');
    for (let first = 0; first < 10_000; first += 500) {
      const keys = Array.from({ length: 500 }, (_, index) => `stock:${first + index}`);
      await Promise.all(keys.map((key) => hold(key, { leaseMs: 600_000 })));
    }
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
    const mortal = await startReplicas(server);
    ends.push(mortal.stop);
    const { url, hold } = await openScene(mortal);
    const page = await openBoard(url);
    expect(await page.locator('#replica').textContent()).toBe('of one');
    mortal.workers[0]!.process.kill('SIGKILL');
    await page.getByText('of two').waitFor();
    await hold('after the kill');
    await rowOf(page, 'after the kill').waitFor();
    expect(await stateOf(page, 'live').count()).toBe(1);
    mortal.workers[1]!.process.kill('SIGKILL');
    await stateOf(page, 'disconnected').waitFor();
    expect(await page.locator('#state').textContent()).toMatch(/Reconnecting … Below is what was known at/);
    expect(await keysOf(page)).toEqual(['after the kill']);
  });

  it('a store that is down is shown as such, and so is its return', async () => {
    const store = await startRedis();
    ends.push(() => store.stop());
    const ofStore = await startReplicas(server, { redis: store.url });
    ends.push(ofStore.stop);
    const { url, hold } = await openScene(ofStore);
    await hold('kept in view', { leaseMs: 600_000 });
    const page = await openBoard(url);
    await rowOf(page, 'kept in view').waitFor();
    store.kill('SIGKILL');
    await store.exited;
    await stateOf(page, 'down').waitFor();
    expect(await page.locator('#state').textContent()).toMatch(/^Store down\. The lock store /);
    expect(await keysOf(page)).toEqual(['kept in view']);
    const again = await startRedis({ port: store.port });
    ends.push(() => again.stop());
    await stateOf(page, 'live').waitFor();
  });

  it('hostile keys are text', async () => {
    const { url, hold } = await openScene(replicas);
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
    await Promise.all([...keys, 'a\u202eb\nc', 'd\u2028e'].map((key) => hold(key)));
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

  it('says that nothing was done if the answer is a page to sign in, and that it is not known after a 504', async () => {
    const { url, locks, hold } = await openScene(replicas);
    const page = await openBoard(url);
    await hold('stuck');
    const answers: Parameters<Route['fulfill']>[0][] = [
      { status: 302, headers: { location: '/login' } },
      { status: 200, contentType: 'text/html', body: '<h1>Sign in</h1>' },
      { status: 504, body: '' },
    ];
    await page.route('**/locks/release', (route) => route.fulfill(answers.shift()));
    await rowOf(page, 'stuck').getByRole('button', { name: 'Release stuck' }).click();
    for (const failure of ['access refused', 'access refused', 'not known whether it was done']) {
      await page.getByRole('button', { name: 'Release the lock' }).click();
      await page.locator('#confirm-result', { hasText: failure }).waitFor();
      await page.getByRole('button', { name: 'Keep it' }).click();
      await rowOf(page, 'stuck').getByRole('button', { name: 'Release stuck' }).click();
    }
    expect(answers).toEqual([]);
    expect(await locks.inspect('stuck')).not.toBeNull();
  });

  it('the guard holds, and the page says when it refuses', async () => {
    const { url } = await openScene(replicas);
    const stranger = await newContext();
    const refused = await stranger.newPage();
    expect((await refused.goto(url))!.status()).toBe(401);
    await stranger.addCookies([{ name: 'user', value: 'guest', url }]);
    expect((await refused.goto(url))!.status()).toBe(403);
    const page = await openBoard(url);
    await page.context().clearCookies();
    await page.evaluate("dispatchEvent(new Event('online'))");
    await page.getByText('Access refused (401)').waitFor();
  });

  it('runs, pauses and resumes a job, each after a confirmation', async () => {
    const { url, cronRuns } = await openScene(replicas);
    const page = await openBoard(url);
    const row = page.locator('#jobs tbody tr', { hasText: 'nightly' });
    const press = async (button: string, confirm: string) => {
      await row.getByRole('button', { name: button }).click();
      await page.getByRole('button', { name: confirm }).click();
    };
    await row.getByText('0 3 * * *').waitFor();
    await press('Run now nightly', 'Do not run it');
    expect((await cronRuns.history('nightly')).runs).toEqual([]);
    await press('Run now nightly', 'Run it now');
    await page.getByText(/^The job runs on (one|two)\.$/).waitFor();
    await row.locator('li[data-outcome=completed][data-manual]').waitFor();
    await press('Pause nightly', 'Pause the job');
    await row.getByText('paused').waitFor();
    expect((await cronRuns.history('nightly')).isPaused).toBe(true);
    await press('Resume nightly', 'Resume the job');
    await row.getByText('paused').waitFor({ state: 'detached' });
    expect((await cronRuns.history('nightly')).isPaused).toBe(false);
    expect((await cronRuns.history('nightly')).runs).toHaveLength(1);
  });
});
