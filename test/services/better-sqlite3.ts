import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { execa } from 'execa';
import { ensurePrograms } from './install.js';

const home = fileURLToPath(new URL('better-sqlite3', import.meta.url));
const packageFolder = join(home, 'node_modules', 'better-sqlite3');
const entry = join(packageFolder, 'lib', 'index.js');

/** A download that takes longer than this is slower than compiling. */
const downloadMs = 60_000;

/**
 * The path of a better-sqlite3 module to import, which is downloaded or compiled first where it does not load yet.
 * Not for two processes at a time, since both would install it.
 */
export async function ensureBetterSqlite3(): Promise<string> {
  if (await canLoad()) return entry;
  // What npm does with install scripts depends on its version and settings, so the binding is made by explicit steps.
  await execa('npm', ['ci', '--ignore-scripts', '--prefix', home], { cwd: home });
  await downloadBinding();
  if (await canLoad()) return entry;
  await compileBinding();
  await load();
  return entry;
}

async function canLoad(): Promise<boolean> {
  const { failed } = await load({ reject: false });
  return !failed;
}

/** Opens a database in a process of its own, so that a half installed module leaves no trace in ours. */
function load({ reject = true } = {}) {
  const program = `new (require(process.argv[1]))(':memory:').close()`;
  return execa(process.execPath, ['-e', program, entry], { reject });
}

/** Without access to the download site this changes nothing; whether it worked shows in loading. */
async function downloadBinding(): Promise<void> {
  await execa('prebuild-install', {
    cwd: packageFolder,
    preferLocal: true,
    localDir: home,
    timeout: downloadMs,
    reject: false,
  });
}

async function compileBinding(): Promise<void> {
  process.stderr.write('Compiling better-sqlite3, for the tests; this takes a minute or two\n');
  await ensurePrograms(['python3', 'make', 'g++']);
  await execa('npm', ['run', 'build-release'], { cwd: packageFolder, env: ownHeaders() });
}

/** The headers that came with this Node, if any; otherwise node-gyp downloads them. */
function ownHeaders(): Record<string, string> {
  const nodeFolder = dirname(dirname(process.execPath));
  const hasHeaders = existsSync(join(nodeFolder, 'include', 'node', 'node.h'));
  return hasHeaders ? { npm_config_nodedir: nodeFolder } : {};
}
