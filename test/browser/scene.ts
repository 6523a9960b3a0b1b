import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll } from 'vitest';
import { Test } from '@nestjs/testing';
import { type Browser, type BrowserContextOptions, type Page, chromium } from 'playwright-core';
import { redisBackend } from '../../lib/backends/redis/index.js';
import {
  type AcquireOptions,
  CronRuns,
  DistributedLockModule,
  type Lock,
  LockService,
} from '../../lib/index.js';
import { type Worker, startProcess, startTestFile } from '../cluster/start-worker.js';
import { serviceUrl } from '../support/environment.js';
import { until } from '../support/until.js';
import { startBalancer } from './balancer.js';

let browser: Browser;
/** What a test has opened, to be closed after it. */
export const ends: (() => unknown)[] = [];

/** Registers the hooks of a spec: one browser for all of its tests, and nothing that a test leaves behind. */
export function useBrowser(): void {
  beforeAll(async () => {
    // The sandbox of Chromium needs more rights than a container has. It loads our own page only.
    browser = await chromium.launch({
      executablePath: serviceUrl('TEST_CHROMIUM'),
      args: ['--no-sandbox'],
    });
  });
  afterAll(() => browser.close());
  afterEach(async () => {
    for (const end of ends.splice(0).reverse()) await end();
  });
}

/** What serves the page. */
export interface BoardServer {
  readonly adapter: 'Express' | 'Fastify';
  /** The file of a replica that runs on another Nest than the one of the repository. */
  readonly file?: string | undefined;
}

interface Place {
  readonly redis: string;
  readonly namespace: string;
}

/** Two processes that serve the page of their locks behind one address. */
interface Replicas extends Place {
  readonly url: string;
  readonly workers: readonly Worker<{ port: number }>[];
  stop(): Promise<void>;
}

export async function startReplicas(
  { adapter, file }: BoardServer,
  { redis = serviceUrl('TEST_REDIS_URL'), namespace = randomUUID() }: Partial<Place> = {},
): Promise<Replicas> {
  const workers = ['one', 'two'].map((instance) => {
    const task = { redis, namespace, instance, adapter };
    return file === undefined
      ? startTestFile<{ port: number }>('browser/workers/board-replica', task)
      : startProcess<{ port: number }>(file, { args: [JSON.stringify(task)] });
  });
  await until(() => workers.every(({ messages }) => messages.length > 0));
  const balancer = await startBalancer(workers.map(({ messages }) => messages[0]!.port));
  const stop = async () => {
    await balancer.close();
    for (const { process } of workers) process.kill('SIGKILL');
    await Promise.all(workers.map(({ ended }) => ended));
  };
  return { url: `${balancer.url}/admin/locks`, workers, redis, namespace, stop };
}

interface Scene {
  readonly url: string;
  /** Of processes without a page, one of which holds locks while the other waits for them. */
  readonly locks: LockService;
  readonly others: LockService;
  /** Acquires one of `locks` until the test ends. */
  hold(key: string, options?: AcquireOptions): Promise<Lock>;
  /** Knows the jobs of the replicas by their history. */
  readonly cronRuns: CronRuns;
}

/** What a test looks at, which ends with the test. */
export async function openScene({ url, redis, namespace }: Replicas): Promise<Scene> {
  const holder = await bootLocks({ redis, namespace, instance: 'holder' });
  const waiter = await bootLocks({ redis, namespace, instance: 'waiter' });
  const locks = holder.get(LockService);
  const hold = async (key: string, options?: AcquireOptions) => {
    const lock = await locks.acquire(key, options);
    // A test may have taken it away.
    ends.push(() => lock.release().catch(() => undefined));
    return lock;
  };
  return { url, locks, others: waiter.get(LockService), hold, cronRuns: holder.get(CronRuns) };
}

async function bootLocks({ redis, ...options }: Record<'redis' | 'namespace' | 'instance', string>) {
  const backend = redisBackend({ url: redis });
  const shutdown = { drainMs: 0, abortGraceMs: 0 };
  const imports = [DistributedLockModule.forRoot({ ...options, backend, shutdown })];
  const app = await Test.createTestingModule({ imports }).compile();
  await app.init();
  ends.push(() => app.close());
  return app;
}

export const newContext = async (options: BrowserContextOptions = {}) => {
  const context = await browser.newContext(options);
  ends.push(() => context.close());
  return context;
};

/** Opens the page with the cookie of an admin, and waits until it is live. */
export async function openBoard(url: string, options: BrowserContextOptions = {}): Promise<Page> {
  const context = await newContext(options);
  await context.addCookies([{ name: 'user', value: 'admin', url }]);
  const page = await context.newPage();
  await page.goto(url);
  await page.locator('.state[data-state=live]').waitFor();
  return page;
}

export const rowOf = (page: Page, key: string) =>
  page.locator('#lock-table tbody tr', { has: page.locator('.key', { hasText: key }) });
