import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type INestApplicationContext, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Test } from '@nestjs/testing';
import { ScheduleModule, SchedulerRegistry } from '@nestjs/schedule';
import { CronJob } from 'cron';
import { execaNode } from 'execa';
import { redisBackend } from '../../lib/backends/redis/index.js';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import { formatTable } from '../../lib/cli/output.js';
import { runCli } from '../../lib/cli/run-cli.js';
import type { LockBackend } from '../../lib/core/backend.js';
import { VERSION } from '../../lib/core/version.js';
import { CronRuns, DistributedLockModule, LockService } from '../../lib/index.js';
import { serviceUrl } from '../support/environment.js';
import { until } from '../support/until.js';
import { freePort } from '../services/free-port.js';

interface Printed {
  readonly code: number;
  readonly result: string;
  readonly warnings: string;
}

async function run(...args: readonly string[]): Promise<Printed> {
  const result: string[] = [];
  const warnings: string[] = [];
  const print = (text: string) => void result.push(text);
  const code = await runCli(args, { print, warn: (text) => void warnings.push(text) });
  return { code, result: result.join('\n'), warnings: warnings.join('\n') };
}

const stores: [name: string, variable: Parameters<typeof serviceUrl>[0], (url: string) => LockBackend][] = [
  ['Redis', 'TEST_REDIS_URL', (url) => redisBackend({ url })],
  ['PostgreSQL', 'TEST_POSTGRES_URL', (url) => typeormBackend({ dataSource: { type: 'postgres', url } })],
  ['MariaDB', 'TEST_MARIADB_URL', (url) => typeormBackend({ dataSource: { type: 'mariadb', url } })],
];

describe.each(stores)('npx nestjs-distributed-lock on %s', (_, variable, backendOf) => {
  const url = serviceUrl(variable);
  let app: INestApplicationContext;
  let store: string[];
  let locks: LockService;

  beforeEach(async () => {
    const namespace = `cli ${randomUUID()}`;
    store = ['--url', url, '--namespace', namespace];
    @Module({
      imports: [
        ScheduleModule.forRoot(),
        DistributedLockModule.forRoot({ backend: backendOf(url), namespace, instance: 'shop-1' }),
      ],
    })
    class ShopModule {}
    app = await NestFactory.createApplicationContext(ShopModule, { logger: false });
    locks = app.get(LockService);
  });
  afterEach(() => app.close());

  it('lists the held locks as a table', async () => {
    await using lock = await locks.acquire('order:42');
    const { code, result } = await run('locks', ...store);
    const [header, row, ...others] = result.split('\n').map((line) => line.split(/ {2,}/));
    expect({ code, others }).toEqual({ code: 0, others: [] });
    expect(header).toEqual([
      ...['KEY', 'MODE', 'PERMIT'],
      ...['INSTANCE', 'SINCE', 'TOKEN', 'REMAINING', 'WAITING'],
    ]);
    expect(row?.slice(0, 4)).toEqual(['order:42', '-', '-', 'shop-1']);
    expect(row?.[5]).toBe(String(lock.fencingToken));
  });

  it('lists the locks that have a prefix as JSON, up to a limit', async () => {
    const held = await Promise.all(
      ['order:1', 'order:2', 'order:3', 'other'].map((key) => locks.acquire(key)),
    );
    const all = await run('locks', ...store, '--prefix', 'order:', '--json');
    const found = JSON.parse(all.result) as { key: string; fencingToken: string }[];
    expect(found.map(({ key }) => key).sort()).toEqual(['order:1', 'order:2', 'order:3']);
    expect(all.warnings).toBe('');
    const two = await run('locks', ...store, '--prefix', 'order:', '--json', '--limit', '2');
    expect((JSON.parse(two.result) as unknown[]).length).toBe(2);
    expect(two.warnings).toContain('more locks');
    await Promise.all(held.map((lock) => lock.release()));
  });

  it('frees the grant with the token, and no other', async () => {
    const lock = await locks.acquire('order:42');
    const wrong = await run('free', 'order:42', ...store, '--token', String(lock.fencingToken - 1n));
    expect(wrong.code).toBe(1);
    expect(wrong.result).toContain('Nothing was released');
    const right = await run('free', 'order:42', ...store, '--token', String(lock.fencingToken), '--json');
    expect(right).toEqual({ code: 0, result: '{"key":"order:42","freed":true}', warnings: '' });
    expect(await locks.inspect('order:42')).toBeNull();
    await lock.release();
  });

  it('lists and frees each permit of a key', async () => {
    const held = await Promise.all([0, 1, 2].map(() => locks.acquire('pdf', { permits: 3 })));
    const { result, warnings } = await run('locks', ...store, '--json', '--limit', '3');
    const found = JSON.parse(result) as { key: string; permit: number; fencingToken: string }[];
    expect(found.map(({ key, permit }) => [key, permit]).sort()).toEqual([
      ['pdf', 0],
      ['pdf', 1],
      ['pdf', 2],
    ]);
    expect(warnings).toBe('');
    const { result: table } = await run('locks', ...store);
    const rows = table.split('\n').map((line) => line.split(/ {2,}/).slice(0, 3));
    expect(rows.slice(1).sort()).toEqual([
      ['pdf', '-', '0'],
      ['pdf', '-', '1'],
      ['pdf', '-', '2'],
    ]);
    const tokenOf = (permit: number) => found.find((lock) => lock.permit === permit)!.fencingToken;
    const freed = await run('free', 'pdf', ...store, '--token', tokenOf(1), '--permit', '1', '--json');
    expect(freed).toEqual({ code: 0, result: '{"key":"pdf","permit":1,"freed":true}', warnings: '' });
    const left = (await locks.inspect('pdf'))?.holders?.map(({ permit }) => permit);
    expect(left).toEqual([0, 2]);
    await Promise.all(held.map((lock) => lock.release()));
  });

  it('names the namespace in which it found nothing', async () => {
    const [, , , namespace] = store;
    expect(await run('locks', ...store, '--json')).toEqual({
      ...{ code: 0, result: '[]' },
      warnings: `No lock is held in the namespace "${namespace}" (--namespace).`,
    });
    const { warnings } = await run('runs', 'nightly', ...store);
    expect(warnings).toBe(`No run of this job is known in the namespace "${namespace}" (--namespace).`);
  });

  it('lists the runs of a job', async () => {
    const cronTime = '* * * * * *';
    let count = 0;
    const onTick = app.get(CronRuns).guard('nightly', { cronTime }, () => void (count += 1));
    const job = CronJob.from({ cronTime, onTick, start: true });
    app.get(SchedulerRegistry).addCronJob('nightly', job);
    await until(() => count > 0);
    await job.stop();
    await until(async () => (await app.get(CronRuns).history('nightly')).runs[0]?.outcome === 'completed');
    const { code, result } = await run('runs', 'nightly', ...store);
    const [header, row] = result.split('\n').map((line) => line.split(/ {2,}/));
    expect(code).toBe(0);
    expect(header).toEqual(['TICK', 'ATTEMPT', 'OUTCOME', 'STARTED', 'TOOK', 'INSTANCE', 'ERROR']);
    expect(row?.slice(1, 3)).toEqual(['1', 'completed']);
    expect(row?.at(-2)).toBe('shop-1');
    const json = await run('runs', 'nightly', ...store, '--json');
    expect(JSON.parse(json.result)).toHaveLength(count);
  });
});

describe('npx nestjs-distributed-lock', () => {
  it.each([
    [['lokcs'], 'Unknown command "lokcs"'],
    [['locks', '--sort'], "Unknown option '--sort'"],
    [['locks', 'order:42'], 'Unexpected: "order:42"'],
    [['locks', 'redis://:secret@host'], 'Unexpected: "redis://…@host"'],
    [['redis://:secret@host'], 'Unknown command "redis://…@host"'],
    [['locks'], 'Missing: --url'],
    [['locks', '--url', 'mongodb://host'], 'Expected --url to begin with'],
    [['locks', '--url', 'redis://host', '--table', 'lock'], 'no option --table'],
    [['locks', '--url', 'postgres://host/db', '--key-prefix', 'a'], 'no option --key-prefix'],
    [['locks', '--url', 'redis://host', '--limit', '0'], '--limit'],
    [['locks', '--url', 'redis://host', '--token', '1'], 'no option --token'],
    [['free', '--url', 'redis://host', '--token', '1'], 'Missing: the key of a lock'],
    [['free', 'order:42', '--url', 'redis://host'], '--token'],
    [['free', 'order:42', '--url', 'redis://host', '--token', '1', '--permit', 'x'], '--permit'],
    [['locks', '--url', 'redis://host', '--permit', '1'], '--permit'],
    [['free', 'order:42', '--url', 'redis://host', '--token', '-1'], '--token'],
    [['free', 'order:42', '--url', 'redis://host', '--token', '9223372036854775808'], '--token'],
    [['runs', '--url', 'redis://host'], 'Missing: the key of a job'],
  ])('rejects %j', async (args, message) => {
    const { code, warnings, result } = await run(...args);
    expect({ code, result }).toEqual({ code: 2, result: '' });
    expect(warnings).toContain(message);
    expect(warnings).toContain('--help');
  });

  it('formats more rows than a call has arguments', () => {
    const rows = Array.from({ length: 200_000 }, (_, index) => [index, 'a']);
    expect(formatTable(rows).split('\n')).toHaveLength(rows.length);
  });

  it('prints the version of the package', async () => {
    const { code, result } = await run('--version');
    expect({ code, result }).toEqual({ code: 0, result: VERSION });
  });

  it('says why the store cannot be used', async () => {
    const { code, warnings } = await run('locks', '--url', `redis://127.0.0.1:${await freePort()}`);
    expect(code).toBe(3);
    expect(warnings).toMatch(/^The lock store refuses connections/);
  });

  it('creates no table', async () => {
    const url = serviceUrl('TEST_POSTGRES_URL');
    const { code, warnings } = await run('locks', '--url', url, '--table', 'no_such_table');
    expect(code).toBe(2);
    expect(warnings).toContain('no_such_table');
  });

  it('prints keys that would steer the terminal as text', async () => {
    const url = serviceUrl('TEST_REDIS_URL');
    const namespace = `cli ${randomUUID()}`;
    const imports = [DistributedLockModule.forRoot({ backend: redisBackend({ url }), namespace })];
    const module = await Test.createTestingModule({ imports }).compile();
    const app = await module.init();
    await using lock = await app.get(LockService).acquire('a\u001b[2Jb\nc\u202Ed');
    const { result } = await run('locks', '--url', url, '--namespace', namespace);
    expect(lock.isValid()).toBe(true);
    expect(result.split('\n')).toHaveLength(2);
    expect(result).toMatch(/\nab\uFFFDc\uFFFDd /);
    await lock.release();
    await app.close();
  });

  it('runs as a program', async () => {
    const { stdout, exitCode } = await execaNode('dist/lib/cli/main.js', ['--help']);
    expect(stdout).toContain('Usage: npx nestjs-distributed-lock');
    expect(exitCode).toBe(0);
  });
});
