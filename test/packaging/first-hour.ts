/** Makes new applications with the Nest CLI, installs the package as the docs say, and runs builds and specs. Needs npm. */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { env } from 'node:process';
import { fileURLToPath } from 'node:url';
import { execa } from 'execa';
import { interruption } from '../services/interruption.js';
import { type EntryPoint, MEMORY, additions, writeFiles } from './application.js';
import { installLines } from './install-lines.js';
import { pack } from './pack.js';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '../..');
const TYPESCRIPTS = ['5.4', '5.5', '5.9', '6'];

/** The entry points that a package of an install line opens. */
const OPENED: Record<string, EntryPoint | readonly EntryPoint[]> = {
  'nestjs-distributed-lock': [
    MEMORY,
    {
      name: 'zookeeper',
      imports: '',
      backend: `zookeeperBackend({ servers: ['${url('TEST_ZOOKEEPER_URL')}'] })`,
    },
  ],
  ioredis: { name: 'redis', imports: '', backend: `redisBackend({ url: '${url('TEST_REDIS_URL')}' })` },
  typeorm: {
    name: 'typeorm',
    imports: `import { DataSource } from 'typeorm';`,
    backend: `typeormBackend({ dataSource: new DataSource({ type: 'postgres', url: '${url('TEST_POSTGRES_URL')}' }) })`,
  },
  '@grpc/grpc-js': {
    name: 'etcd',
    imports: '',
    backend: `etcdBackend({ hosts: ['${url('TEST_ETCD_URL')}'] })`,
  },
};

const folder = await mkdtemp(join(tmpdir(), 'first-hour-'));
const cancelSignal = interruption();
try {
  const tarball = await pack(ROOT, folder);
  for (const nest of [12, 11]) await tryOut(nest, tarball);
} finally {
  await rm(folder, { recursive: true, force: true });
}

async function tryOut(nest: number, tarball: string): Promise<void> {
  const isEsm = nest >= 12;
  const name = `nest-${nest}`;
  const application = join(folder, name);
  const run = runnerIn(application);
  const cli = [
    '--yes',
    `@nestjs/cli@${nest}`,
    'new',
    name,
    '--skip-install',
    '--skip-git',
    '--package-manager',
    'npm',
  ];
  await runnerIn(folder)('npx', cli);
  await run('npm', ['install']);
  for (const packages of installLines(nest)) {
    await run('npm', [
      'install',
      ...packages.map((one) => (one === 'nestjs-distributed-lock' ? tarball : one)),
    ]);
    for (const entryPoint of packages.flatMap((one) => OPENED[one.replace(/@\d+$/, '')] ?? [])) {
      console.log(`Nest ${nest}, ${entryPoint.name}:`);
      await writeFiles(application, additions(entryPoint, { isEsm }));
      for (const script of ['build', 'test', 'test:e2e']) await run('npm', ['run', script]);
    }
  }
  if (!isEsm) await compileAsOlderScaffolds(application);
}

/** The scaffolds of older CLIs compile to `commonjs`, with the module resolution that knows no `exports`. */
async function compileAsOlderScaffolds(application: string): Promise<void> {
  const config = JSON.parse(await readFile(join(application, 'tsconfig.json'), 'utf8')) as {
    compilerOptions: Record<string, unknown>;
  };
  const { resolvePackageJsonExports: _, baseUrl: __, ...options } = config.compilerOptions;
  const older = {
    target: 'ES2021',
    module: 'commonjs',
    moduleResolution: 'node10',
    skipLibCheck: false,
    noEmit: true,
    types: ['node'],
  };
  for (const version of TYPESCRIPTS) {
    const isDeprecated = version.startsWith('6');
    await writeFiles(application, {
      'src/entry-points.ts': `
        export * from 'nestjs-distributed-lock';
        export * from 'nestjs-distributed-lock/memory';
        export { redisBackend } from 'nestjs-distributed-lock/redis';
        export { typeormBackend } from 'nestjs-distributed-lock/typeorm';
        export { etcdBackend } from 'nestjs-distributed-lock/etcd';
        export { zookeeperBackend } from 'nestjs-distributed-lock/zookeeper';
        export { LockTestingModule } from 'nestjs-distributed-lock/testing';
        export { LockHealthIndicator } from 'nestjs-distributed-lock/terminus';
        export { instrumentLocks } from 'nestjs-distributed-lock/opentelemetry';
        export { LockBoardModule } from 'nestjs-distributed-lock/board';`,
      'tsconfig.older.json': JSON.stringify({
        compilerOptions: { ...options, ...older, ...(isDeprecated && { ignoreDeprecations: '6.0' }) },
        include: ['src'],
        exclude: ['**/*.spec.ts'],
      }),
    });
    const tsc = ['--yes', `--package=typescript@${version}`, '--', 'tsc', '--project', 'tsconfig.older.json'];
    await runnerIn(application)('npm', ['exec', ...tsc]);
  }
}

/** Runs commands one by one and says so; what they print is shown only if they fail. */
function runnerIn(cwd: string) {
  return async (file: string, args: readonly string[]): Promise<void> => {
    console.log(`$ ${[file, ...args].join(' ')}`);
    // Npm hands its own settings and those of this script to what it runs.
    const variables = Object.fromEntries(
      Object.entries(env).filter(([name]) => !/^(npm_|NODE_OPTIONS$)/i.test(name)),
    );
    const { failed, all } = await execa(file, args, {
      ...{ cwd, cancelSignal, all: true, reject: false, extendEnv: false, env: variables },
    });
    if (failed) throw new Error(`This failed in ${cwd}: ${[file, ...args].join(' ')}\n${all}`);
  };
}

function url(variable: string): string {
  const value = env[variable];
  if (value === undefined) throw new Error(`Expected ${variable}. Run this by "npm run first-hour".`);
  return value;
}
