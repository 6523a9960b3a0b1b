import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { execaNode } from 'execa';
import ts from 'typescript';
import { MEMORY, additions, writeFiles } from '../packaging/application.js';
import { nest11Scaffold } from '../packaging/nest-11-scaffold.js';
import { pack, unpack } from '../packaging/pack.js';
import { tempFolder } from '../temp-folder.js';
import { ROOT } from './sources.js';

/** Below `test/nest-11` an application finds Nest 11, below the root Nest 12. */
const nest11 = join(ROOT, 'test/nest-11/dist/application');
const nest12 = join(ROOT, 'dist/application');
const folder = tempFolder();
const DOORS = ['', '/redis', '/typeorm', '/memory', '/testing'];

const everyDoor = `
  import { DistributedLockModule, type Lock } from 'nestjs-distributed-lock';
  import { fencedSet, redisBackend } from 'nestjs-distributed-lock/redis';
  import { FencingToken, fencedUpdate, typeormBackend } from 'nestjs-distributed-lock/typeorm';
  import { memoryBackend } from 'nestjs-distributed-lock/memory';
  import { LockTestingModule, backendLaws } from 'nestjs-distributed-lock/testing';

  export const tokenOf = (lock: Lock): bigint => lock.fencingToken;
  export const doors = [DistributedLockModule, fencedSet, redisBackend, FencingToken, fencedUpdate, typeormBackend,
    memoryBackend, LockTestingModule, backendLaws];`;

beforeAll(async () => {
  const tarball = await pack(ROOT, folder);
  for (const application of [nest11, nest12]) {
    rmSync(application, { recursive: true, force: true });
    mkdirSync(application, { recursive: true });
    await unpack(tarball, application);
  }
  await writeFiles(nest11, {
    ...nest11Scaffold,
    ...additions(MEMORY, { isEsm: false }),
    'src/doors.ts': everyDoor,
  });
  await writeFiles(nest12, { 'package.json': '{ "type": "module" }', 'src/doors.ts': everyDoor });
}, 60_000);
afterAll(() => [nest11, nest12].forEach((made) => rmSync(made, { recursive: true, force: true })));

describe('the packed package', () => {
  it('shows the same behind each door to require() and to import', async () => {
    const list = `opened.map((door) => Object.keys(door).filter((name) => name !== 'module.exports').sort())`;
    await writeFiles(nest11, {
      'required.cjs': `
        const opened = ${JSON.stringify(DOORS)}.map((door) => require('nestjs-distributed-lock' + door));
        console.log(JSON.stringify(${list}));`,
      'imported.mjs': `
        const opened = await Promise.all(${JSON.stringify(DOORS)}.map((door) => import('nestjs-distributed-lock' + door)));
        console.log(JSON.stringify(${list}));`,
    });
    const required = await run('required.cjs', ['--no-experimental-require-module']);
    expect(required).toEqual(await run('imported.mjs'));
    expect(JSON.parse(required)).toHaveLength(DOORS.length);
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
  ])('runs in the %s of an application of the Nest CLI 11, in its default Jest', async (_, args) => {
    await execaNode(join(ROOT, 'node_modules/jest/bin/jest.js'), args, { cwd: nest11, nodeOptions: [] });
  });
});

async function run(file: string, nodeOptions: string[] = []): Promise<string> {
  const { stdout } = await execaNode(join(nest11, file), { cwd: nest11, nodeOptions });
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
  const program = ts.createProgram([join(application, 'src/doors.ts')], options);
  const files = program.getSourceFiles().filter(({ fileName }) => fileName.startsWith(application));
  return [
    ...program.getOptionsDiagnostics(),
    ...files.flatMap((file) => program.getSemanticDiagnostics(file)),
  ].map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n'));
}
