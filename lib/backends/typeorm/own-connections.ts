import { DataSource, type DataSourceOptions, type QueryRunner } from 'typeorm';
import { atMost } from '../../core/at-most.js';
import { systemClock } from '../../core/clock.js';
import { LockConfigError } from '../../core/errors.js';
import { NoAnswerInTime } from '../../core/no-answer-in-time.js';
import { reasonOf } from '../../core/shown.js';
import { Deadline } from './deadline.js';
import type { Dialect, Send } from './dialect.js';
import { Link } from './link.js';
import { persist } from './persist.js';

const OPEN_LIMIT_MS = 10_000;
const CLOSE_LIMIT_MS = 1_000;

/**
 * A few connections beside the user's: a lock must not wait for a free one of a busy application, nor stand or fall
 * with somebody's transaction. TypeORM opens and closes them. Nothing is opened before the first is asked for.
 */
export class OwnConnections {
  readonly #dialect: Dialect;
  readonly #usersOptions: () => DataSourceOptions;
  readonly #send: Send;
  readonly #links = new Set<Link>();
  #source: Promise<DataSource> | undefined;
  #isClosed = false;

  constructor(dialect: Dialect, usersOptions: () => DataSourceOptions) {
    this.#dialect = dialect;
    this.#usersOptions = usersOptions;
    this.#send = dialect.sender();
  }

  /** Opens one more. */
  async connect(): Promise<Link> {
    if (this.#isClosed) throw new Error('the connections to the database were closed');
    using deadline = new Deadline(OPEN_LIMIT_MS);
    const runner = (await deadline.within(this.#open())).createQueryRunner('master');
    const linking = (runner.connect() as Promise<object>).then((connection) =>
      this.#link(runner, connection),
    );
    try {
      const link = await deadline.within(linking);
      for (const statement of this.#dialect.greeting ?? []) await link.visit(deadline).query(statement);
      return link;
    } catch (cause) {
      linking.then((link) => link.giveUp()).catch(() => undefined); // Also one that comes too late.
      throw cause;
    }
  }

  /** Leaves nothing behind, nor does what is still being opened. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const links = [...this.#links];
    for (const link of links) link.setAwaited(true); // What keeps no process alive would not be waited for either.
    // A pool may say that it is closed while its connections still wait for a silent database.
    const closed = Promise.allSettled(links.map((link) => link.release()))
      .then(() => this.#source)
      .then((source) => source?.destroy())
      .catch(() => undefined)
      .then(() => Promise.all(links.map(({ ended }) => ended)));
    if (!(await atMost(systemClock, CLOSE_LIMIT_MS, closed))) for (const link of links) link.giveUp();
  }

  #link(runner: QueryRunner, connection: object): Link {
    const link = new Link({ dialect: this.#dialect, send: this.#send, runner, connection });
    if (this.#isClosed) {
      link.giveUp();
      throw new Error('the connection came when it was no longer wanted');
    }
    this.#links.add(link);
    void link.ended.then(() => this.#links.delete(link));
    return link;
  }

  #open(): Promise<DataSource> {
    const source = (this.#source ??= this.#connect());
    source.catch(() => {
      if (this.#source === source) this.#source = undefined;
    });
    return source;
  }

  async #connect(): Promise<DataSource> {
    const [preferred, next] = this.#dialect.ownOptions(this.#usersOptions());
    using deadline = new Deadline(OPEN_LIMIT_MS);
    return await persist(this.#dialect, deadline, async () => {
      try {
        return await connect(this.#dialect, preferred);
      } catch (cause) {
        if (!next || this.#dialect.faultOf(cause) !== 'setting refused') throw cause;
        return await connect(this.#dialect, next);
      }
    });
  }
}

async function connect(dialect: Dialect, options: DataSourceOptions): Promise<DataSource> {
  const source = create(options);
  const opening = source.initialize();
  try {
    if (await atMost(systemClock, OPEN_LIMIT_MS, opening)) return source;
    opening.then(() => source.destroy()).catch(() => undefined);
    throw new NoAnswerInTime(OPEN_LIMIT_MS);
  } catch (cause) {
    await disconnect(dialect, source);
    throw cause;
  }
}

/** TypeORM leaves its pool open when it got in but could not go on; and a pool may wait for ever for a silent connection. */
async function disconnect({ connectionsOf, socketOf }: Dialect, { driver }: DataSource): Promise<void> {
  const closed = driver.disconnect().catch(() => undefined);
  if (await atMost(systemClock, CLOSE_LIMIT_MS, closed)) return;
  for (const connection of connectionsOf?.(driver) ?? []) socketOf(connection)?.destroy();
}

function create(options: DataSourceOptions): DataSource {
  try {
    return new DataSource(options);
  } catch (cause) {
    throw new LockConfigError(
      `typeormBackend: TypeORM does not accept the options of its dataSource (${reasonOf(cause)}).`,
      { cause },
    );
  }
}
