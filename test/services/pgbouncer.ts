import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { askSql } from './ask-sql.js';
import { freePort } from './free-port.js';
import type { Service } from './service.js';
import { startServer } from './start-server.js';
import { unprivilegedUser } from './unprivileged-user.js';

interface PoolerOptions {
  /** The program. */
  readonly file: string;
  /** The PostgreSQL behind it; each of its databases is also one of the pooler. */
  readonly server: string;
  /** Further settings; they win over ours. @default none */
  readonly settings?: Readonly<Record<string, string | number>>;
}

/** Few servers, used in turn: one statement of a connection hardly ever meets the server of the one before. */
const ours = {
  listen_addr: '127.0.0.1',
  unix_socket_dir: '',
  auth_type: 'any',
  pool_mode: 'transaction',
  default_pool_size: 3,
  min_pool_size: 3,
  server_round_robin: 1,
  max_client_conn: 1_000,
  // While the server is started again, the pooler does not wait for long.
  server_login_retry: 1,
};

/** Starts a private PgBouncer in transaction mode, whose URL is that of the server with another port. */
export async function startPgbouncer({ file, server, settings = {} }: PoolerOptions): Promise<Service> {
  const port = await freePort();
  const { hostname, port: serverPort, username, password } = new URL(server);
  const login = [`user=${decodeURIComponent(username)}`];
  if (password) login.push(`password=${decodeURIComponent(password)}`);
  const lines = [
    '[databases]',
    `* = host=${hostname} port=${serverPort || 5432} ${login.join(' ')}`,
    '[pgbouncer]',
    ...Object.entries({ ...ours, listen_port: port, ...settings }).map(
      ([name, value]) => `${name} = ${value}`,
    ),
  ];
  return startServer(
    {
      name: 'pgbouncer',
      file,
      // It ends at once in every version, and not with the exit code of an error.
      stopSignal: 'SIGQUIT',
      user: await unprivilegedUser(),
      url: () => at(server, port),
      prepare: ({ dataDir }) => writeFile(configIn(dataDir), `${lines.join('\n')}\n`, { mode: 0o644 }),
      args: ({ dataDir }) => [configIn(dataDir)],
      ask: (url) => askSql('postgres', url),
    },
    { port },
  );
}

const configIn = (folder: string) => join(folder, 'pgbouncer.ini');

function at(server: string, port: number): string {
  const url = new URL(server);
  url.hostname = '127.0.0.1';
  url.port = String(port);
  return url.href;
}
