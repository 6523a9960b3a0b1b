const BACKENDS = ['sqlite', 'redis', 'postgres', 'mariadb'] as const;
export type Backend = (typeof BACKENDS)[number];

const EXAMPLES = {
  redis: 'redis://127.0.0.1:6379',
  postgres: 'postgres://user:password@127.0.0.1:5432/database',
  mariadb: 'mariadb://user:password@127.0.0.1:3306/database',
};

/** What the environment tells a replica. */
export class Settings {
  /** Where the locks are. Stock and orders are in the same database, with Redis in SQLite. */
  readonly backend: Backend;
  /** The server of the backend; empty for SQLite. */
  readonly url: string;
  /** The SQLite file. */
  readonly file: string;
  /** Names this run: its tables and locks start with it, so that runs on one server do not meet. */
  readonly run: string;
  /** The name of this replica. */
  readonly replica: string;
  /** Whether orders are placed under the lock. */
  readonly isLocked: boolean;

  /** @throws Error that says which variable to set */
  constructor(environment: NodeJS.ProcessEnv) {
    this.backend = backendNamed(environment['SAMPLE_BACKEND'] ?? 'sqlite');
    this.url = environment['SAMPLE_URL'] ?? '';
    this.file = environment['SAMPLE_FILE'] ?? 'flash-sale.sqlite';
    this.run = environment['SAMPLE_RUN'] ?? 'flash_sale';
    this.replica = environment['SAMPLE_REPLICA'] ?? `replica-${process.pid}`;
    this.isLocked = environment['SAMPLE_WITHOUT_LOCK'] !== 'true';
    if (this.backend !== 'sqlite' && this.url === '') throw missingUrl(this.backend);
  }
}

function backendNamed(text: string): Backend {
  const backend = BACKENDS.find((known) => known === text);
  if (backend) return backend;
  throw new Error(`Expected SAMPLE_BACKEND to be one of ${BACKENDS.join(', ')}, got "${text}".`);
}

const missingUrl = (backend: Exclude<Backend, 'sqlite'>) =>
  new Error(
    `SAMPLE_BACKEND=${backend} needs SAMPLE_URL, such as ${EXAMPLES[backend]}; ` +
      `\`npm run services -- --only ${backend}\` starts a private server and prints its URL.`,
  );
