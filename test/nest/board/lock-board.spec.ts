import { afterEach, describe, expect, it } from 'vitest';
import type { Server } from 'node:http';
import {
  type CallHandler,
  type ExecutionContext,
  type INestApplication,
  VersioningType,
} from '@nestjs/common';
import { map } from 'rxjs';
import { memoryBackend } from '../../../lib/backends/memory/index.js';
import { LockBoardModule } from '../../../lib/board/index.js';
import { Test } from '@nestjs/testing';
import {
  CronRuns,
  DistributedLockModule,
  LeaderElection,
  LockConfigError,
  LockService,
} from '../../../lib/index.js';
import { Gate } from '../../support/gate.js';
import { until } from '../../support/until.js';
import {
  type AdapterName,
  OpenStream,
  PasswordGuard,
  PasswordModule,
  bootBoard,
  postRelease,
} from './board-application.js';

let app: INestApplication | undefined;
const streams: OpenStream[] = [];
afterEach(async () => {
  for (const stream of streams.splice(0)) stream.close();
  await app?.close();
  app = undefined;
});

async function boot(...parameters: Parameters<typeof bootBoard>): Promise<string> {
  const booted = await bootBoard(...parameters);
  app = booted.app;
  return booted.url;
}

async function open(...parameters: Parameters<typeof OpenStream.open>): Promise<OpenStream> {
  const stream = await OpenStream.open(...parameters);
  streams.push(stream);
  return stream;
}

const locks = () => app!.get(LockService);

const connectionsOf = (application: INestApplication) =>
  new Promise<number>((resolve) =>
    (application.getHttpServer() as Server).getConnections((_, count) => resolve(count)),
  );

describe.each<AdapterName>(['Express', 'Fastify'])('on %s', (adapter) => {
  it('the guard of the application refuses page, files, stream and actions', async () => {
    const url = await boot(adapter, {
      guards: [PasswordGuard],
      imports: [PasswordModule],
      actions: 'all',
    });
    for (const path of ['', '/board.js', '/board.css', '/board.svg', '/stream']) {
      expect((await fetch(`${url}/locks${path}`)).status).toBe(401);
      expect((await fetch(`${url}/locks${path}`, { headers: { password: 'wrong' } })).status).toBe(403);
    }
    const lock = await locks().acquire('report');
    const grant = { key: 'report', fencingToken: String(lock.fencingToken) };
    expect(await postRelease(url, grant)).toBe(401);
    expect(await postRelease(url, grant, { password: 'wrong' })).toBe(403);
    expect(await locks().inspect('report')).not.toBeNull();
    const page = await fetch(`${url}/locks`, { headers: { password: 'right' } });
    expect(await page.text()).toContain('<title>Locks</title>');
  });

  it.each(['cross-site', 'same-site'])('refuses a stream to a page elsewhere: %s', async (site) => {
    const url = await boot(adapter);
    const response = await fetch(`${url}/locks/stream`, { headers: { 'sec-fetch-site': site } });
    expect(response.status).toBe(403);
  });

  it.each([
    ['of another host', 'http://elsewhere.example', 403],
    ['of another port', 'http://127.0.0.1:1', 403],
    ['without a name', 'null', 403],
    ['of the page itself', undefined, 200],
  ])('answers to a stream over plain HTTP with the origin %s', async (_, origin, status) => {
    const url = await boot(adapter);
    const ended = new AbortController();
    const headers = { origin: origin ?? url };
    const response = await fetch(`${url}/locks/stream`, { headers, signal: ended.signal });
    expect(response.status).toBe(status);
    ended.abort();
  });

  it('the page loads its files below any prefix, and nothing from elsewhere', async () => {
    const url = await boot(adapter, { path: 'ops/locks' }, (created) => {
      created.setGlobalPrefix('admin');
      created.enableVersioning({ type: VersioningType.URI, defaultVersion: '1' });
      // What the application does to results must not change the page.
      created.useGlobalInterceptors({
        intercept: (_, next: CallHandler) => next.handle().pipe(map((data: unknown) => ({ data }))),
      });
    });
    const address = `${url}/admin/v1/ops/locks`;
    const page = await fetch(`${address}?prefix=a`);
    expect(page.headers.get('content-type')).toMatch(/^text\/html/);
    expect(page.headers.get('content-security-policy')).toContain("default-src 'none'; script-src 'self'");
    expect(page.headers.get('content-security-policy')).toContain("frame-ancestors 'none'");
    expect(page.headers.get('x-content-type-options')).toBe('nosniff');
    expect(page.headers.get('cache-control')).toBe('no-store');
    expect(page.headers.get('set-cookie')).toBeNull();
    const html = await page.text();
    expect(html).not.toMatch(/<script(?! type="module" src=)|<style|\son\w+=|\sstyle=|https?:/);
    const links = [...html.matchAll(/(?:src|href)="([^"#]+)"/g)].map(([, link]) => link!);
    expect(links).toHaveLength(3);
    for (const link of links) {
      const file = await fetch(new URL(link, address));
      expect({ link, status: file.status }).toEqual({ link, status: 200 });
      expect(file.headers.get('content-type')).toMatch(/javascript|css|svg/);
    }
  });

  it('a stream shows a lock after its grant, and its end', async () => {
    const stream = await open(await boot(adapter));
    expect(await stream.next('hello')).toMatchObject({
      namespace: 'shop',
      backend: 'memory',
      actions: 'read',
    });
    const key = '<img src=x onerror=alert(1)> \u202e🔒\n"quoted"';
    const lock = await locks().acquire(key);
    await until(() => stream.keys.includes(key));
    expect(stream.latest.get('locks')).toMatchObject({
      locks: [{ key, fencingToken: String(lock.fencingToken), waiting: 0 }],
    });
    await lock.release();
    await until(() => stream.keys.length === 0);
    expect(await stream.next('store')).toMatchObject({ status: 'up', latencyMs: expect.any(Number) });
  });

  it('any number of viewers costs one poll of the store, and no viewer none', async () => {
    const reads = { list: 0, inspect: 0 };
    const backend = memoryBackend();
    const list = backend.list.bind(backend);
    const inspect = backend.inspect.bind(backend);
    backend.list = (...parameters) => {
      reads.list += 1;
      return list(...parameters);
    };
    backend.inspect = (...parameters) => {
      reads.inspect += 1;
      return inspect(...parameters);
    };
    const url = await boot(adapter, { backend });
    const viewers = await Promise.all(Array.from({ length: 20 }, () => open(url)));
    await until(() => viewers.every((viewer) => viewer.count('store') >= 3));
    // Of each poll, a viewer gets one state of the store. The health check reads one key, and the page is read once.
    const polls = Math.max(...viewers.map((viewer) => viewer.count('store')));
    // One for the locks, one for the permits, and one for the read and write locks.
    expect(reads.list).toBeLessThanOrEqual(3 * (polls + 1));
    expect(reads.inspect).toBeLessThanOrEqual(polls + 1);
    for (const viewer of viewers) viewer.close();
    // Longer than two polls, so that one which was already under way has ended.
    const pause = () => new Promise((resolve) => setTimeout(resolve, 2_500));
    await pause();
    const before = { ...reads };
    await pause();
    expect(reads).toEqual(before);
  });

  it('a browser that goes away while a guard decides is no viewer, nor is a HEAD request', async () => {
    let lists = 0;
    const backend = memoryBackend();
    const list = backend.list.bind(backend);
    backend.list = (...parameters) => {
      lists += 1;
      return list(...parameters);
    };
    const decided = new Gate();
    const guard = new Gate();
    const canActivate = async (context: ExecutionContext) => {
      if (context.switchToHttp().getRequest<{ method: string }>().method === 'HEAD') return true;
      guard.open();
      await decided.passed;
      return true;
    };
    const url = await boot(adapter, { backend, guards: [{ canActivate }] });
    const leaving = new AbortController();
    const left = fetch(`${url}/locks/stream`, { signal: leaving.signal }).catch(() => 'left');
    await guard.passed;
    leaving.abort();
    expect(await left).toBe('left');
    await until(async () => (await connectionsOf(app!)) === 0);
    decided.open();
    const head = await fetch(`${url}/locks/stream`, { method: 'HEAD' });
    expect(head.status).toBe(200);
    // Longer than two polls.
    await new Promise((resolve) => setTimeout(resolve, 2_500));
    expect(lists).toBe(0);
  });

  it('viewers of different keys take turns', async () => {
    const url = await boot(adapter);
    await Promise.all(['order:1', 'order:2', 'invoice:1'].map((key) => locks().acquire(key)));
    const [orders, invoices] = [await open(url, '?prefix=order%3A'), await open(url, '?prefix=invoice%3A')];
    await until(() => orders.count('locks') >= 2 && invoices.count('locks') >= 2);
    expect(orders.keys).toEqual(['order:1', 'order:2']);
    expect(invoices.keys).toEqual(['invoice:1']);
  });

  it('sends events again only if there are new ones', async () => {
    const stream = await open(await boot(adapter));
    await until(() => stream.count('store') >= 3);
    expect(stream.count('events')).toBe(1);
    await expect(locks().withLock('a', () => locks().acquire('a'))).rejects.toThrow();
    const held = await locks().acquire('b');
    await expect(locks().acquire('b', { waitMs: 0 })).rejects.toThrow();
    await held.release();
    await until(() => stream.count('events') >= 2);
  });

  it('shows a new viewer no job as it was before nobody looked', async () => {
    const url = await boot(adapter);
    const guards = Array.from({ length: 6 }, (_, index) =>
      app!.get(CronRuns).guard(`job ${index}`, { everyMs: 3_600_000 }, () => undefined),
    );
    const lengthOf = ({ jobs }: Record<string, unknown>) => (jobs as unknown[]).length;
    const first = await open(url);
    await first.next('jobs', (data) => lengthOf(data) === 6);
    first.close();
    await until(async () => (await connectionsOf(app!)) === 0);
    // One reading of the page reads five jobs.
    expect(lengthOf(await (await open(url)).next('jobs'))).toBe(5);
    for (const onTick of guards) onTick[Symbol.dispose]();
  });

  it('reads a page that is new at once, but one such page at a time', async () => {
    const backend = memoryBackend();
    const list = backend.list.bind(backend);
    const [isFree, lists] = [new Gate(), { running: 0, most: 0 }];
    const url = await boot(adapter, { backend });
    const first = await open(url);
    await first.next('locks');
    backend.list = async (...parameters) => {
      lists.running += 1;
      lists.most = Math.max(lists.most, lists.running);
      await isFree.passed;
      lists.running -= 1;
      return list(...parameters);
    };
    const others = await Promise.all(Array.from({ length: 10 }, (_, index) => open(url, `?prefix=${index}`)));
    await until(() => lists.running >= 2);
    isFree.open();
    await until(() => others.every((viewer) => viewer.count('locks') > 0));
    // That of the poll, and one of the new pages.
    expect(lists.most).toBe(2);
  });

  it('a cursor that is none is told to its viewer only', async () => {
    const url = await boot(adapter);
    const [wrong, right] = [await open(url, '?prefix=a&cursor=b'), await open(url)];
    expect(await wrong.next('locks')).toMatchObject({ error: expect.stringContaining('cursor') });
    expect(await right.next('locks')).toMatchObject({ locks: [] });
  });

  it('close() of the application ends the streams', async () => {
    const stream = await open(await boot(adapter));
    await stream.next('locks');
    await app!.close();
    await until(() => stream.hasEnded);
  });

  it('a store that does not answer is shown as down, and as up when it answers again', async () => {
    const backend = memoryBackend();
    const inspect = backend.inspect.bind(backend);
    const stream = await open(await boot(adapter, { backend }));
    await stream.next('store', ({ status }) => status === 'up');
    backend.inspect = () => new Promise(() => undefined);
    expect(await stream.next('store', ({ status }) => status === 'down')).toMatchObject({
      message: expect.stringContaining('The lock store does not answer yet'),
    });
    backend.inspect = inspect;
    await stream.next('store', ({ status }) => status === 'up');
  });

  it('a job or election that cannot be read says so, beside the others', async () => {
    const backend = memoryBackend();
    const [readHistory, inspect] = [backend.readHistory.bind(backend), backend.inspect.bind(backend)];
    const refused = () => Promise.reject(new Error('no right to read'));
    backend.readHistory = (key, ...rest) => (key.endsWith('broken') ? refused() : readHistory(key, ...rest));
    backend.inspect = (key, ...rest) => (key.endsWith('broken') ? refused() : inspect(key, ...rest));
    const stream = await open(await boot(adapter, { backend }));
    // Without a reference, the jobs would be garbage-collected.
    const guards = ['broken', 'sound'].map((name) => {
      app!.get(LeaderElection).join(name);
      return app!.get(CronRuns).guard(name, { everyMs: 3_600_000 }, () => undefined);
    });
    const isComplete = (list: unknown) => (list as unknown[]).length === 2;
    const error = expect.stringContaining('no right to read');
    expect((await stream.next('jobs', ({ jobs }) => isComplete(jobs))).jobs).toMatchObject([
      { key: 'broken', error, runs: [] },
      { key: 'sound', runs: [] },
    ]);
    await stream.next('leaders', ({ leaders }) => isComplete(leaders));
    await stream.next(
      'leaders',
      ({ leaders }) => (leaders as { leader?: object | null }[])[1]?.leader != null,
    );
    expect(stream.latest.get('leaders')!.leaders).toMatchObject([
      { election: 'broken', error },
      { election: 'sound', leader: { instance: expect.any(String) } },
    ]);
    for (const onTick of guards) onTick[Symbol.dispose]();
  });

  it('releases exactly the grant that was shown', async () => {
    const url = await boot(adapter, { actions: 'all' });
    const lock = await locks().acquire('report');
    const fencingToken = String(lock.fencingToken);
    expect(await postRelease(url, { key: 'report', fencingToken: String(lock.fencingToken - 1n) })).toBe(409);
    expect(await postRelease(url, { key: 'other', fencingToken })).toBe(409);
    expect(await locks().inspect('report')).not.toBeNull();
    expect(await postRelease(url, { key: 'report', fencingToken })).toBe(200);
    expect(await locks().inspect('report')).toBeNull();
    expect(await postRelease(url, { key: 'report', fencingToken })).toBe(409);
  });

  it('shows each permit of a key, and releases exactly the one that was shown', async () => {
    const url = await boot(adapter, { actions: 'all' });
    const held = await Promise.all([0, 1, 2].map(() => locks().acquire('pdf', { permits: 3 })));
    const stream = await open(url);
    await until(() => stream.keys.length === 3);
    const shown = stream.latest.get('locks')!.locks as { permit: number; fencingToken: string }[];
    expect(shown.map(({ permit }) => permit).sort()).toEqual([0, 1, 2]);
    const { fencingToken } = shown.find(({ permit }) => permit === 1)!;
    expect(await postRelease(url, { key: 'pdf', fencingToken, permit: '1' })).toBe(400);
    expect(await postRelease(url, { key: 'pdf', fencingToken, permit: 1 })).toBe(200);
    expect((await locks().inspect('pdf'))?.holders?.map(({ permit }) => permit)).toEqual([0, 2]);
    for (const lock of held) await lock.release();
  });

  it.each([
    ['another site', { 'sec-fetch-site': 'cross-site' }, 403],
    ['another subdomain', { 'sec-fetch-site': 'same-site' }, 403],
    ['another origin', { 'sec-fetch-site': null, origin: 'https://evil.example' }, 403],
    ['a sandboxed frame', { 'sec-fetch-site': null, origin: 'null' }, 403],
    ['no browser', { 'sec-fetch-site': null }, 403],
    ['a form', { 'content-type': 'application/x-www-form-urlencoded' }, 415],
    ['a form with plain text', { 'content-type': 'text/plain' }, 415],
  ])('refuses a release of %s', async (_, headers, status) => {
    const url = await boot(adapter, { actions: 'all' });
    const lock = await locks().acquire('report');
    const grant = { key: 'report', fencingToken: String(lock.fencingToken) };
    expect(await postRelease(url, grant, headers)).toBe(status);
    expect(await locks().inspect('report')).not.toBeNull();
    // An older browser sends Origin, but not Sec-Fetch-Site.
    expect(await postRelease(url, grant, { 'sec-fetch-site': null, origin: url })).toBe(200);
  });

  it.each([
    '{}',
    '[]',
    'null',
    '{"key":"a"}',
    '{"key":"a","fencingToken":1}',
    '{"key":"","fencingToken":"1"}',
    '{"key":"a","fencingToken":"1","permit":"1"}',
  ])('refuses the release %s', async (body) => {
    expect(await postRelease(await boot(adapter, { actions: 'all' }), body)).toBe(400);
  });

  it('has no route for actions unless they are allowed', async () => {
    const url = await boot(adapter);
    const lock = await locks().acquire('report');
    const grant = { key: 'report', fencingToken: String(lock.fencingToken) };
    expect(await postRelease(url, grant)).toBe(404);
    expect(await locks().inspect('report')).not.toBeNull();
  });
});

it.each([
  [{}, 'guards: [YourAdminGuard]'],
  [undefined, 'guards: [YourAdminGuard]'],
  [{ guards: [] }, "guards: 'none'"],
  [{ guards: [undefined] }, 'guards: [YourAdminGuard]'],
  [{ guards: 'all' }, 'guards: [YourAdminGuard]'],
  [{ guards: 'none', actions: 'some' }, "'read' or 'all'"],
  [{ guards: 'none', path: 1 }, 'options.path'],
  [{ guards: 'none', gards: [] }, "no option 'gards'"],
])('the options %j do not boot', (options, message) => {
  const create = () => LockBoardModule.forRoot(options as Parameters<typeof LockBoardModule.forRoot>[0]);
  expect(create).toThrow(LockConfigError);
  expect(create).toThrow(message);
});

it('the class without forRoot() does not boot, and says what to write', async () => {
  const imports = [DistributedLockModule.forRoot({ backend: memoryBackend() }), LockBoardModule];
  await expect(Test.createTestingModule({ imports }).compile()).rejects.toThrow(
    'Write LockBoardModule.forRoot({ guards: [YourAdminGuard] })',
  );
});

it('a board without a lock module does not boot, and says what to import', async () => {
  await expect(boot('Express', { name: 'other' })).rejects.toThrow(
    "Import DistributedLockModule.forRoot(…) with the name 'other'",
  );
});
