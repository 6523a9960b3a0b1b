import { existsSync } from 'node:fs';
import { realpath } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { askSql } from './ask-sql.js';
import { ensureProgram } from './install.js';
import type { ServerHome } from './server-home.js';
import type { Service, ServiceOptions } from './service.js';
import { startServer } from './start-server.js';
import { unprivilegedUser } from './unprivileged-user.js';

const settings = [
  // Data must survive a killed server, not a power cut; so the disk is never waited for.
  'fsync=off',
  'full_page_writes=off',
  'max_connections=200',
  'listen_addresses=127.0.0.1',
  // Debian's default folder for sockets belongs to another user.
  'unix_socket_directories=',
  // So the shared memory of a killed server goes away with its folder.
  'dynamic_shared_memory_type=mmap',
];

/** Starts a private PostgreSQL with the database `lock` and the superuser `lock`, who needs no password. */
export async function startPostgres(options: ServiceOptions = {}): Promise<Service> {
  // The path behind any link, because initdb must be of the same version.
  const file = await realpath(await ensureProgram('postgres'));
  return startServer(
    {
      name: 'postgres',
      file,
      // A shutdown that does not wait for clients to leave.
      stopSignal: 'SIGINT',
      user: await unprivilegedUser(),
      url: (port) => `postgres://lock@127.0.0.1:${port}/lock`,
      prepare: (home) => createDatabase(home, file),
      args: ({ dataDir, port }) => [
        '-D',
        dataDir,
        '-p',
        `${port}`,
        ...settings.flatMap((setting) => ['-c', setting]),
      ],
      ask: (url) => askSql('postgres', url),
    },
    options,
  );
}

async function createDatabase(home: ServerHome, postgres: string): Promise<void> {
  if (existsSync(join(home.dataDir, 'PG_VERSION'))) return;
  const initdb = join(dirname(postgres), 'initdb');
  const folder = ['-D', home.dataDir];
  await home.run(initdb, [...folder, '-U', 'lock', '-A', 'trust', '-E', 'UTF8', '--locale=C', '--no-sync']);
  await home.run(postgres, ['--single', ...folder, '-F', 'postgres'], 'CREATE DATABASE lock\n');
}
