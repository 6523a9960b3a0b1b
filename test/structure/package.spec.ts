import { mkdirSync, rmSync } from 'node:fs';
import { cp, mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { execaNode } from 'execa';
import ts from 'typescript';
import { VERSION } from '../../lib/core/version.js';
import { MEMORY, additions, writeFiles } from '../packaging/application.js';
import { nest11Scaffold } from '../packaging/nest-11-scaffold.js';
import { pack, unpack } from '../packaging/pack.js';
import { tempFolder } from '../support/temp-folder.js';
import { ROOT } from './sources.js';

/** The compiler and the specs of the applications take long on a busy machine. */
const LIMIT_MS = 120_000;
vi.setConfig({ testTimeout: LIMIT_MS, hookTimeout: LIMIT_MS });

/** Below `test/nest-11` an application finds Nest 11, below the root Nest 12. */
const nest11 = join(ROOT, 'test/nest-11/dist/application');
const nest12 = join(ROOT, 'dist/application');
const folder = tempFolder();
const ENTRY_POINTS = [
  '',
  '/redis',
  '/typeorm',
  '/etcd',
  '/zookeeper',
  '/memory',
  '/testing',
  '/terminus',
  '/opentelemetry',
  '/board',
];

const everyEntryPoint = `
  import { DistributedLockModule, type Lock } from 'nestjs-distributed-lock';
  import { fencedSet, redisBackend } from 'nestjs-distributed-lock/redis';
  import { FencingToken, fencedUpdate, typeormBackend } from 'nestjs-distributed-lock/typeorm';
  import { etcdBackend } from 'nestjs-distributed-lock/etcd';
  import { zookeeperBackend } from 'nestjs-distributed-lock/zookeeper';
  import { memoryBackend } from 'nestjs-distributed-lock/memory';
  import { LockTestingModule, backendLaws } from 'nestjs-distributed-lock/testing';
  import { LockHealthIndicator } from 'nestjs-distributed-lock/terminus';
  import { instrumentLocks } from 'nestjs-distributed-lock/opentelemetry';
  import { LockBoardModule } from 'nestjs-distributed-lock/board';

  export const tokenOf = (lock: Lock): bigint => lock.fencingToken;
  export const entryPoints = [DistributedLockModule, fencedSet, redisBackend, FencingToken, fencedUpdate, typeormBackend,
    etcdBackend, zookeeperBackend, memoryBackend, LockTestingModule, backendLaws, LockHealthIndicator,
    instrumentLocks, LockBoardModule];`;

/** The head of a script that decorates without TypeScript, and boots an application. */
const decorate = `
  import 'reflect-metadata';
  import { createRequire } from 'node:module';
  import { Module } from '@nestjs/common';
  import { NestFactory } from '@nestjs/core';
  import { ScheduleModule } from '@nestjs/schedule';
  const require = createRequire(import.meta.url);
  const decorate = (target, name, ...decorators) => {
    const descriptor = Object.getOwnPropertyDescriptor(target.prototype, name);
    for (const decorator of decorators) decorator(target.prototype, name, descriptor);
    Object.defineProperty(target.prototype, name, descriptor);
  };
  const boot = (imports, providers = []) => {
    class AppModule {}
    Module({ imports: [ScheduleModule.forRoot(), ...imports], providers })(AppModule);
    return NestFactory.createApplicationContext(AppModule, { logger: false, abortOnError: false });
  };`;

let tarball: string;

beforeAll(async () => {
  tarball = await pack(ROOT, folder);
  for (const application of [nest11, nest12]) {
    rmSync(application, { recursive: true, force: true });
    mkdirSync(application, { recursive: true });
    await unpack(tarball, application);
  }
  await writeFiles(nest11, {
    ...nest11Scaffold,
    ...additions(MEMORY, { isEsm: false }),
    'src/entry-points.ts': everyEntryPoint,
  });
  await writeFiles(nest12, {
    'package.json': '{ "type": "module" }',
    'src/entry-points.ts': everyEntryPoint,
  });
});
afterAll(() => [nest11, nest12].forEach((made) => rmSync(made, { recursive: true, force: true })));

describe('the packed package', () => {
  it('shows the same behind each entry point to require() and to import', async () => {
    const list = `opened.map((entryPoint) => Object.keys(entryPoint).filter((name) => name !== 'module.exports').sort())`;
    await writeFiles(nest11, {
      'required.cjs': `
        const opened = ${JSON.stringify(ENTRY_POINTS)}.map((entryPoint) => require('nestjs-distributed-lock' + entryPoint));
        console.log(JSON.stringify(${list}));`,
      'imported.mjs': `
        const opened = await Promise.all(${JSON.stringify(ENTRY_POINTS)}.map((entryPoint) => import('nestjs-distributed-lock' + entryPoint)));
        console.log(JSON.stringify(${list}));`,
    });
    const required = await run('required.cjs', ['--no-experimental-require-module']);
    expect(required).toEqual(await run('imported.mjs'));
    expect(JSON.parse(required)).toHaveLength(ENTRY_POINTS.length);
  });

  it('is at most 40 kB larger because of the page', async () => {
    const [application, other] = [join(folder, 'application'), join(folder, 'without-page')];
    const place = await unpack(tarball, application);
    for (const part of ['dist/lib/board', 'dist/cjs/board', 'docs/board'])
      await rm(join(place, part), { recursive: true, force: true });
    await mkdir(other);
    const [whole, without] = await Promise.all([stat(tarball), stat(await pack(place, other))]);
    expect(whole.size - without.size).toBeLessThan(40_000);
  });

  it('answers health checks of Nest 11', async () => {
    await writeFiles(nest11, {
      'health.cjs': `
        require('reflect-metadata');
        const { TerminusModule } = require('@nestjs/terminus');
        const { Test } = require('@nestjs/testing');
        const { LockHealthIndicator } = require('nestjs-distributed-lock/terminus');
        const { LockControl, LockTestingModule } = require('nestjs-distributed-lock/testing');
        const checkTwice = async () => {
          const imports = [TerminusModule, LockTestingModule.forRoot()];
          const module = Test.createTestingModule({ imports, providers: [LockHealthIndicator] });
          const app = await (await module.compile()).init();
          const check = async () => (await app.get(LockHealthIndicator).isHealthy('locks')).locks.status;
          const before = await check();
          app.get(LockControl).disconnect();
          console.log(before, await check());
          await app.close();
        };
        void checkTwice();`,
    });
    expect(await run('health.cjs', ['--no-experimental-require-module'])).toBe('up down');
  });

  const versions = [
    ['Nest 11', nest11],
    ['Nest 12', nest12],
  ] as const;

  it.each(versions)(
    'shows the page to whom a guard lets pass, and acts for them, on %s',
    async (_, application) => {
      await writeFiles(application, {
        'page.mjs': `
        import 'reflect-metadata';
        import { Module, UnauthorizedException } from '@nestjs/common';
        import { NestFactory } from '@nestjs/core';
        import { DistributedLockModule, LockService } from 'nestjs-distributed-lock';
        import { LockBoardModule } from 'nestjs-distributed-lock/board';
        import { memoryBackend } from 'nestjs-distributed-lock/memory';
        class AdminGuard {
          canActivate(context) {
            if (context.switchToHttp().getRequest().headers.user === 'admin') return true;
            throw new UnauthorizedException();
          }
        }
        class AppModule {}
        const shutdown = { drainMs: 0, abortGraceMs: 0 };
        const locks = DistributedLockModule.forRoot({ backend: memoryBackend(), shutdown });
        Module({ imports: [locks, LockBoardModule.forRoot({ guards: [AdminGuard], actions: 'all' })] })(AppModule);
        const app = await NestFactory.create(AppModule, { logger: false });
        await app.listen(0, '127.0.0.1');
        const url = (await app.getUrl()) + '/locks';
        const { fencingToken } = await app.get(LockService).acquire('order:42');
        const isHeld = async () => (await app.get(LockService).inspect('order:42')) !== null;
        const json = { 'content-type': 'application/json', 'sec-fetch-site': 'same-origin' };
        const statuses = [];
        for (const user of ['guest', 'admin']) {
          for (const file of ['', '/board.js', '/stream']) {
            const response = await fetch(url + file, { headers: { user } });
            statuses.push(response.status);
            if (file === '/stream' && user === 'admin') {
              let text = '';
              for await (const chunk of response.body) if ((text += Buffer.from(chunk)).includes('order:42')) break;
            } else await response.body?.cancel();
          }
          const body = JSON.stringify({ key: 'order:42', fencingToken: String(fencingToken) });
          statuses.push((await fetch(url + '/release', { method: 'POST', body, headers: { ...json, user } })).status);
          statuses.push(await isHeld());
        }
        console.log(JSON.stringify(statuses));
        await app.close();`,
      });
      const [refused, allowed] = [401, 200].map((status) => Array<number>(4).fill(status));
      expect(JSON.parse(await run('page.mjs', [], application))).toEqual([
        ...[...refused!, true],
        ...[...allowed!, false],
      ]);
    },
  );

  it.each(versions)('reads schedules and off switches from ConfigService, on %s', async (_, application) => {
    await writeFiles(application, {
      'configured.mjs': `${decorate}
        import { ConfigModule, ConfigService } from '@nestjs/config';
        import { SchedulerRegistry } from '@nestjs/schedule';
        import { CronRuns, DistributedLockModule, SingletonCron } from 'nestjs-distributed-lock';
        import { memoryBackend } from 'nestjs-distributed-lock/memory';
        process.env.NIGHTLY_AT = '0 4 * * *';
        process.env.CLEANUP = 'off';
        class Jobs {
          nightly() {}
          cleanup() {}
        }
        for (const key of ['nightly', 'cleanup'])
          decorate(Jobs, key, SingletonCron('0 3 * * *', { key, timeZone: 'UTC' }));
        const locks = DistributedLockModule.forRootAsync({
          imports: [ConfigModule],
          inject: [ConfigService],
          useFactory: (config) => ({
            backend: memoryBackend(),
            jobs: {
              nightly: { cronTime: config.get('NIGHTLY_AT') },
              cleanup: { disabled: config.get('CLEANUP') === 'off' },
            },
          }),
        });
        const app = await boot([ConfigModule.forRoot(), locks], [Jobs]);
        const jobs = await app.get(CronRuns).jobs();
        const fired = [...app.get(SchedulerRegistry).getCronJobs().values()].filter(({ isActive }) => isActive);
        console.log(JSON.stringify({
          jobs: jobs.map(({ key, schedule, isFiring }) => [key, schedule, isFiring]),
          next: fired.map((job) => job.nextDate().toUTC().toFormat('HH:mm')),
        }));
        await app.close();`,
    });
    expect(JSON.parse(await run('configured.mjs', [], application))).toEqual({
      jobs: expect.arrayContaining([
        ['nightly', '0 4 * * *', true],
        ['cleanup', '0 3 * * *', false],
      ]),
      next: ['04:00'],
    });
  });

  it('is one copy where Node.js can require what it imports', async () => {
    await writeFiles(nest11, {
      'both.mjs': `
        import { createRequire } from 'node:module';
        import { LockService } from 'nestjs-distributed-lock';
        console.log(createRequire(import.meta.url)('nestjs-distributed-lock').LockService === LockService);`,
    });
    expect(await run('both.mjs')).toBe('true');
  });

  it.each([
    ['a CommonJS application of Nest 11', nest11, { module: 'commonjs', moduleResolution: 'node10' }],
    ['a CommonJS application of Nest 11', nest11, { module: 'node16', moduleResolution: 'node16' }],
    ['a CommonJS application of Nest 11', nest11, { module: 'nodenext', moduleResolution: 'nodenext' }],
    ['a bundled application of Nest 11', nest11, { module: 'esnext', moduleResolution: 'bundler' }],
    ['an ESM application of Nest 12', nest12, { module: 'nodenext', moduleResolution: 'nodenext' }],
    ['a bundled application of Nest 12', nest12, { module: 'esnext', moduleResolution: 'bundler' }],
  ])('has types for %s', (_, application, resolution) => {
    expect(faultsOf(application, resolution)).toEqual([]);
  });

  it.each([
    ['unit specs', []],
    ['e2e specs', ['--config', './test/jest-e2e.json']],
  ])('runs in the %s of an application of the Nest CLI 11, in its default Jest', (_, args) => runJest(args));
});

describe('two copies in one process', () => {
  const esm = './node_modules/nestjs-distributed-lock/dist/lib/index.js';
  const cjs = './node_modules/nestjs-distributed-lock/dist/cjs/index.js';
  it.each([
    [esm, cjs],
    [cjs, esm],
  ])(
    'recognise tokens, metadata, errors and the current lock of each other: %s first',
    async (one, other) => {
      await writeFiles(nest11, {
        'copies.mjs': `${decorate}
        const one = await import('${one}');
        const other = await import('${other}');
        const { memoryBackend } = await import('${other.replace('index.js', 'backends/memory/index.js')}');

        class Shop {
          constructor(locks) { this.locks = locks; }
          async buy() { return other.currentLock() === one.currentLock() && one.currentLock().key; }
          async again() { return this.locks.withLock('again', () => 'never'); }
          async report() {}
        }
        Reflect.defineMetadata('design:paramtypes', [other.LockService], Shop);
        decorate(Shop, 'buy', other.Locked('tea', { onContention: 'skip' }));
        decorate(Shop, 'again', other.Locked('again'));
        decorate(Shop, 'report', other.SingletonCron('0 3 * * *'), other.OnElected('reporter'));

        const app = await boot([one.DistributedLockModule.forRoot({ backend: memoryBackend() })], [Shop]);
        const shop = app.get(Shop);
        const locks = app.get(one.LockService);
        const reentry = await shop.again().catch((error) => error);
        const taken = await locks.acquire('tea');
        const skipped = await shop.buy();
        await taken.release();
        const history = await app.get(other.CronRuns).history('Shop.report');
        console.log(JSON.stringify({
          bought: await shop.buy(),
          skipped: skipped === undefined,
          error: [one, other].map(({ LockReentryError, LockError }) =>
            reentry instanceof LockReentryError && reentry instanceof LockError),
          job: history.nextTick !== null,
          election: app.get(other.LeaderElection) === app.get(one.LeaderElection),
        }));
        await app.close();`,
      });
      expect(JSON.parse(await run('copies.mjs'))).toEqual({
        ...{ bought: 'tea', skipped: true, error: [true, true], job: true, election: true },
      });
    },
  );

  it('refuse to be two modules of one application', async () => {
    await writeFiles(nest11, {
      'twice.mjs': `${decorate}
        const modules = [];
        for (const root of ['${esm}', '${cjs}']) {
          const { DistributedLockModule } = await import(root);
          const { memoryBackend } = await import(root.replace('index.js', 'backends/memory/index.js'));
          modules.push(DistributedLockModule.forRoot({ backend: memoryBackend() }));
        }
        const error = await boot(modules).catch((error) => error);
        console.log(error.name, error.message);`,
    });
    expect(await run('twice.mjs')).toMatch(/^LockConfigError Expected one DistributedLockModule .*found 2/);
  });

  it('of two versions: each refuses to boot, and names both files', async () => {
    const second = join(nest11, 'node_modules/second');
    await cp(join(nest11, 'node_modules/nestjs-distributed-lock'), second, { recursive: true });
    const version = join(second, 'dist/cjs/core/version.js');
    await writeFile(version, (await readFile(version, 'utf8')).replaceAll(VERSION, '99.0.0'));
    await writeFiles(nest11, {
      'versions.mjs': `${decorate}
        const one = await import('${esm}');
        const other = await import('./node_modules/second/dist/cjs/index.js');
        const attempts = [
          () => one.DistributedLockModule.forRoot({}),
          () => other.DistributedLockModule.forRootAsync({ useFactory: () => ({}) }),
          () => decorate(class Shop { async buy() {} }, 'buy', other.Locked('tea')),
        ];
        const reasons = attempts.map((attempt) => {
          try { attempt(); } catch (error) { return error.name + ' ' + error.message; }
        });
        console.log(JSON.stringify(reasons));`,
    });
    const reasons = JSON.parse(await run('versions.mjs')) as string[];
    expect(reasons).toHaveLength(3);
    for (const reason of reasons) {
      expect(reason).toMatch(
        /^LockConfigError .*found .*dist\/lib\/.* and 99\.0\.0 .*second\/dist\/cjs\/.*npm dedupe/,
      );
    }
  });

  it('of one file, as Jest loads it after its modules are reset, both boot', async () => {
    await writeFiles(nest11, {
      'src/reset.spec.ts': `
        const bootAnew = async () => {
          jest.resetModules();
          require('reflect-metadata');
          const { Test } = require('@nestjs/testing');
          const { DistributedLockModule, LockService, LockTimeoutError } = require('nestjs-distributed-lock');
          const { memoryBackend } = require('nestjs-distributed-lock/memory');
          const backend = memoryBackend();
          const app = await Test.createTestingModule({ imports: [DistributedLockModule.forRoot({ backend })] }).compile();
          await app.init();
          return { app, LockTimeoutError, locks: app.get(LockService) };
        };

        it('boots twice', async () => {
          const apps = [await bootAnew(), await bootAnew()];
          for (const { app, locks, LockTimeoutError } of apps) {
            const lock = await locks.acquire('key');
            await expect(locks.acquire('key', { waitMs: 0 })).rejects.toBeInstanceOf(LockTimeoutError);
            await lock.release();
            await app.close();
          }
        });`,
    });
    await runJest(['reset.spec']);
  });

  it('a service is tested under the fake timers of Jest, modern and legacy', async () => {
    await writeFiles(nest11, {
      'src/fake-timers.spec.ts': `
        import { Test } from '@nestjs/testing';
        import { LockService, LockTimeoutError } from 'nestjs-distributed-lock';
        import { LockControl, LockTestingModule } from 'nestjs-distributed-lock/testing';

        afterEach(() => void jest.useRealTimers());

        it.each([false, true])('legacy: %j', async (legacyFakeTimers) => {
          const app = await Test.createTestingModule({ imports: [LockTestingModule.forRoot()] }).compile();
          await app.init();
          const [locks, control] = [app.get(LockService), app.get(LockControl)];
          jest.useFakeTimers({ legacyFakeTimers });
          await control.take('key');
          await expect(locks.acquire('key', { waitMs: 20 })).rejects.toThrow(LockTimeoutError);
          const ran = locks.withLock('key', (lock) => {
            jest.advanceTimersByTime(3_600_000);
            return lock.isValid();
          });
          await control.free('key');
          expect(await ran).toBe(true);
          await app.close();
        });`,
    });
    await runJest(['src/fake-timers.spec']);
  });
});

it('the version that copies of the package know each other by is that of the manifest', async () => {
  const manifest = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as { version: string };
  expect(VERSION).toBe(manifest.version);
});

async function runJest(args: readonly string[]): Promise<void> {
  const jestFile = join(ROOT, 'node_modules/jest/bin/jest.js');
  await execaNode(jestFile, [...args, `--testTimeout=${LIMIT_MS}`], { cwd: nest11, nodeOptions: [] });
}

async function run(file: string, nodeOptions: string[] = [], cwd = nest11): Promise<string> {
  const { stdout } = await execaNode(join(cwd, file), { cwd, nodeOptions });
  return stdout;
}

/** What the compiler says of the application and of our declarations, which it checks too. */
function faultsOf(application: string, resolution: object): string[] {
  const { options } = ts.convertCompilerOptionsFromJson(
    {
      ...resolution,
      ignoreDeprecations: '6.0',
      target: 'es2022',
      types: ['node'],
      strict: true,
      experimentalDecorators: true,
      emitDecoratorMetadata: true,
      skipLibCheck: false,
      noEmit: true,
    },
    application,
  );
  const program = ts.createProgram([join(application, 'src/entry-points.ts')], options);
  const files = program.getSourceFiles().filter(({ fileName }) => fileName.startsWith(application));
  return [
    ...program.getOptionsDiagnostics(),
    ...files.flatMap((file) => program.getSemanticDiagnostics(file)),
  ].map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n'));
}
