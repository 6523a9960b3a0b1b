import { cp, mkdir, mkdtemp, readFile, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { transform } from '@swc/core';
import { build } from 'esbuild';

/** A fault to be put into the code. */
export interface CodeMutation {
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

/** The code of the library and of the workers as JavaScript, so that a process starts in a fraction of the time. */
export interface CompiledCode {
  readonly folder: string;
  /** Replaces the code of a file, which is named as in the repository. */
  put(file: string, source: string): Promise<void>;
  /** Bundles the workers of the cluster specs anew, each with all that it imports. */
  bundleWorkers(): Promise<void>;
  remove(): Promise<void>;
}

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const SOURCES = ['lib', 'test'];
const WORKERS = 'test/cluster/workers/*.js';
/** What TypeORM and Nest load only where it is installed, and what finds its binary beside its own file. */
const NOT_BUNDLED = [
  ...[
    '@google-cloud/spanner',
    '@sap/hana-client',
    'better-sqlite3',
    'hdb-pool',
    'libsql',
    'mongodb',
    'mssql',
  ],
  ...['mysql', 'oracledb', 'pg-native', 'pg-query-stream', 'react-native-sqlite-storage', 'redis', 'sql.js'],
  ...['sqlite3', 'typeorm-aurora-data-api-driver', '@nestjs/microservices'],
  ...['@nestjs/websockets', 'class-transformer', 'class-validator'],
];

export async function compile(): Promise<CompiledCode> {
  const folder = await mkdtemp(join(tmpdir(), 'lock-test-code-'));
  const put = async (file: string, source: string) => {
    const target = join(folder, file.replace(/\.ts$/, '.js'));
    await mkdir(dirname(target), { recursive: true });
    await writeFile(target, await toJavaScript(source, file));
  };
  await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  // For the few that use the built package.
  await symlink(join(ROOT, 'dist'), join(folder, 'dist'));
  await cp(join(ROOT, 'package.json'), join(folder, 'package.json'));
  for (const source of SOURCES) {
    const names = (await readdir(join(ROOT, source), { recursive: true })).filter(isOurs);
    const files = names.map((name) => join(source, name));
    await Promise.all(files.map(async (file) => put(file, await readFile(join(ROOT, file), 'utf8'))));
  }
  return {
    ...{ folder, put },
    bundleWorkers: () => bundleWorkers(folder),
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}

/** Reading hundreds of small files is most of what starting a worker costs. The bundles are in `bundled/`. */
async function bundleWorkers(folder: string): Promise<void> {
  await build({
    absWorkingDir: folder,
    entryPoints: [WORKERS],
    outdir: 'bundled',
    outbase: '.',
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    keepNames: true,
    minifyWhitespace: true,
    // An uncaught error prints its line.
    lineLimit: 200,
    // For the CommonJS modules in the bundle.
    banner: {
      js: "import { createRequire as requireFrom } from 'node:module'; const require = requireFrom(import.meta.url);",
    },
    external: NOT_BUNDLED.flatMap((name) => [name, `${name}/*`]),
    logLevel: 'error',
  });
}

const isOurs = (file: string) =>
  file.endsWith('.ts') && !file.endsWith('.spec.ts') && !file.includes('node_modules');

export async function toJavaScript(source: string, filename: string): Promise<string> {
  const { code } = await transform(source, {
    filename,
    swcrc: false,
    sourceMaps: 'inline',
    jsc: {
      target: 'es2022',
      parser: { syntax: 'typescript', decorators: true },
      transform: { legacyDecorator: true, decoratorMetadata: true, useDefineForClassFields: true },
    },
    module: { type: 'es6' },
  });
  return code;
}

export function applyMutation(source: string, { file, find, replace }: CodeMutation): string {
  if (source.split(find).length !== 2) throw new Error(`${file}: expected this once: ${find}`);
  return source.replace(find, () => replace);
}
