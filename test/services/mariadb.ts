import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { askSql } from './ask-sql.js';
import { ensureProgram } from './install.js';
import type { ServerHome } from './server-home.js';
import type { Service, ServiceOptions } from './service.js';
import { startServer } from './start-server.js';

const settings = [
  '--bind-address=127.0.0.1',
  '--skip-log-bin',
  '--skip-name-resolve',
  '--max-connections=300',
  // Data must survive a killed server, not a power cut; so a commit does not wait for the disk.
  '--innodb-flush-log-at-trx-commit=2',
];

/** Starts a private MariaDB with the database `lock` and the user `root`, who needs no password. */
export async function startMariadb(options: ServiceOptions = {}): Promise<Service> {
  return startServer(
    {
      name: 'mariadb',
      file: await ensureProgram('mariadbd'),
      stopSignal: 'SIGTERM',
      url: (port) => `mariadb://root@127.0.0.1:${port}/lock`,
      prepare: createDatabase,
      args: ({ dataDir, port }) => [
        ...commonArguments(dataDir),
        `--port=${port}`,
        `--socket=${join(dataDir, 'mariadb.sock')}`,
        `--pid-file=${join(dataDir, 'mariadb.pid')}`,
        ...settings,
      ],
      ask: (url) => askSql('mariadb', url),
    },
    options,
  );
}

async function createDatabase(home: ServerHome): Promise<void> {
  if (existsSync(join(home.dataDir, 'mysql'))) return;
  const script = join(home.dataDir, 'create.sql');
  await writeFile(script, 'CREATE DATABASE `lock`;\n');
  const accounts = ['--auth-root-authentication-method=normal', '--skip-name-resolve', '--skip-test-db'];
  const installer = await ensureProgram('mariadb-install-db');
  await home.run(installer, [...commonArguments(home.dataDir), ...accounts, `--extra-file=${script}`]);
}

/** What the server and its installer must agree on; `--no-defaults` counts only as the first argument. */
function commonArguments(dataDir: string): string[] {
  // MariaDB runs as root only when told to.
  const user = process.getuid?.() === 0 ? ['--user=root'] : [];
  // A server removes temporary files of others from the folder that it shares with them.
  const folders = [`--datadir=${dataDir}`, `--tmpdir=${dataDir}`];
  // Filling the log file is most of the work of a first start.
  return ['--no-defaults', ...folders, '--innodb-log-file-size=8M', ...user];
}
