import { existsSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { execa } from 'execa';
import { findProgram } from './find-program.js';

/** The Debian package that brings each program, or another file. */
const packages = {
  'redis-server': 'redis-server',
  postgres: 'postgresql',
  pgbouncer: 'pgbouncer',
  mariadbd: 'mariadb-server',
  'mariadb-install-db': 'mariadb-server',
  python3: 'python3',
  make: 'make',
  'g++': 'g++',
  gcc: 'gcc',
  spin: 'spin',
  chromium: 'chromium',
  etcd: 'etcd-server',
  etcdctl: 'etcd-client',
  openssl: 'openssl',
  java: 'openjdk-17-jre-headless',
  '/usr/share/java/zookeeper.jar': 'libzookeeper-java',
} as const;

export type Program = keyof typeof packages;

/** The full path of a program, which is installed first where it is missing; see `ensurePrograms`. */
export async function ensureProgram(program: Program): Promise<string> {
  await ensurePrograms([program]);
  const path = await findProgram(program);
  if (path) return path;
  throw new Error(
    `${program} is still missing although the package ${packages[program]} was installed; reinstall it`,
  );
}

let lastInstallation: Promise<void> = Promise.resolve();

/**
 * Installs what is missing of these programs in one go: as root with apt-get, saying so on stderr.
 * Everybody else gets an error with the line to type. One call after the other, because apt-get runs once at a time.
 */
export function ensurePrograms(programs: readonly Program[]): Promise<void> {
  lastInstallation = lastInstallation.catch(() => undefined).then(() => install(programs));
  return lastInstallation;
}

async function install(programs: readonly Program[]): Promise<void> {
  const paths = await Promise.all(programs.map(findProgram));
  const missing = programs.filter((_, index) => paths[index] === undefined);
  if (missing.length === 0) return;

  const names = [...new Set(missing.map((program) => packages[program]))];
  const aptGet = await findProgram('apt-get');
  if (aptGet && process.getuid?.() === 0) return aptInstall(aptGet, names);

  const remedy = aptGet
    ? `type: sudo apt-get update && sudo apt-get install --yes --no-install-recommends ${names.join(' ')}`
    : `install what Debian calls ${names.join(' ')} and put it on PATH`;
  throw new Error(`the tests need ${missing.join(', ')}, which is not on PATH; ${remedy}`);
}

async function aptInstall(aptGet: string, names: readonly string[]): Promise<void> {
  process.stderr.write(`Installing with apt-get, for the tests: ${names.join(' ')}\n`);
  // Another process may be installing at this moment. Its `update` has a lock that apt-get does not wait for.
  const apt = (...args: string[]) =>
    execa('flock', [aptGet, aptGet, '-qq', '-o', 'DPkg::Lock::Timeout=300', ...args], {
      env: { DEBIAN_FRONTEND: 'noninteractive' },
      stdin: 'ignore',
    });
  await apt('update');
  await withoutServiceStart(() => apt('install', '--yes', '--no-install-recommends', ...names));
}

/** Keeps Debian from starting the servers it installs: the tests want only their own. */
async function withoutServiceStart(install: () => Promise<unknown>): Promise<void> {
  const policy = '/usr/sbin/policy-rc.d';
  // A policy that is already there was somebody's decision.
  if (existsSync(policy)) {
    await install();
    return;
  }
  await writeFile(policy, '#!/bin/sh\nexit 101\n', { mode: 0o755 });
  try {
    await install();
  } finally {
    await rm(policy);
  }
}
