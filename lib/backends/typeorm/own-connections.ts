import { DataSource, type DataSourceOptions, type QueryRunner } from 'typeorm';
import { atMost } from '../../core/at-most.js';
import { systemClock } from '../../core/clock.js';
import { LockConfigError } from '../../core/errors.js';
import { reasonOf } from '../../core/shown.js';
import { NoAnswerInTime } from '../../core/no-answer-in-time.js';
import { Deadline } from './deadline.js';
import type { Dialect, Query } from './dialect.js';
import { persist } from './persist.js';

const OPEN_LIMIT_MS = 10_000;
const CLOSE_LIMIT_MS = 1_000;

/** A data source of ours, from its opening to its end. */
interface Opened {
  readonly source: Promise<DataSource>;
  readonly uses: Set<Promise<unknown>>;
  /** Those that were greeted and live, each with the end of its socket, if it has one. */
  readonly connections: Map<object, Promise<unknown>>;
  /** Settles when all uses before have; at once where there are several connections. */
  turn: Promise<unknown>;
}

/**
 * A few connections beside the user's: a lock must not wait for a free one of a busy application, nor stand or fall
 * with somebody's transaction. Opened at the first use and again after {@link close} or a failure.
 */
export class OwnConnections {
  readonly #dialect: Dialect;
  readonly #usersOptions: () => DataSourceOptions;
  #opened: Opened | undefined;

  constructor(dialect: Dialect, usersOptions: () => DataSourceOptions) {
    this.#dialect = dialect;
    this.#usersOptions = usersOptions;
  }

  /** Does work over one connection. Where the deadline passes during a statement, the connection is given up. */
  use<T>(deadline: Deadline, work: (query: Query) => Promise<T>): Promise<T> {
    const opened = (this.#opened ??= this.#open());
    const using = this.#use(opened, opened.turn, deadline, work).finally(() => opened.uses.delete(using));
    opened.uses.add(using);
    // Without its value, which would hold all values before it.
    if (this.#dialect.isInProcess) {
      opened.turn = Promise.allSettled([opened.turn, using]).then(() => undefined);
    }
    return using;
  }

  /** Lets what is under way come to its end, which its deadline bounds. */
  async close(): Promise<void> {
    const opened = this.#opened;
    if (!opened) return;
    this.#opened = undefined;
    await Promise.allSettled(opened.uses);
    const closing = opened.source.then((source) => source.destroy()).catch(() => undefined);
    // A pool may say that it is closed while its connections still wait for a silent database.
    const closed = closing.then(() => Promise.all(opened.connections.values()));
    if (await atMost(systemClock, CLOSE_LIMIT_MS, closed)) return;
    for (const connection of opened.connections.keys()) this.#dialect.socketOf(connection)?.destroy();
  }

  async #use<T>(
    { source, connections }: Opened,
    turn: Promise<unknown>,
    deadline: Deadline,
    work: (query: Query) => Promise<T>,
  ): Promise<T> {
    const runner = (await deadline.within(source)).createQueryRunner('master');
    await deadline.within(turn);
    const connecting = runner.connect() as Promise<object>;
    try {
      const connection = await deadline.within(connecting);
      deadline.throwIfOver();
      const query = this.#queryOver(runner, connection, deadline);
      if (!connections.has(connection)) await this.#greet(connection, connections, query);
      return await work(query);
    } finally {
      // Also one that comes too late must go back. One that was given up must not, before its driver knows that it ended.
      void connecting
        .then((connection) => this.#dialect.socketOf(connection)?.destroyed && connections.get(connection))
        .then(() => runner.release())
        .catch(() => undefined);
    }
  }

  #queryOver(runner: QueryRunner, connection: object, deadline: Deadline): Query {
    // A busy file made nothing of the statement, which can be tried again even within a transaction.
    if (this.#dialect.isInProcess) {
      return (sql, parameters = []) =>
        persist<unknown>(this.#dialect, deadline, () => runner.query(sql, [...parameters]));
    }
    return async (sql, parameters = []) => {
      deadline.throwIfOver();
      try {
        return await deadline.within<unknown>(runner.query(sql, [...parameters]));
      } catch (cause) {
        if (cause instanceof NoAnswerInTime) this.#dialect.socketOf(connection)?.destroy();
        throw cause;
      }
    };
  }

  async #greet(connection: object, connections: Opened['connections'], query: Query): Promise<void> {
    if (this.#dialect.greeting) await query(this.#dialect.greeting);
    const socket = this.#dialect.socketOf(connection);
    const end = socket ? new Promise((resolve) => socket.once('close', resolve)) : undefined;
    connections.set(connection, end ? end.then(() => connections.delete(connection)) : Promise.resolve());
  }

  #open(): Opened {
    const source = this.#connect();
    const opened: Opened = { source, uses: new Set(), connections: new Map(), turn: Promise.resolve() };
    source.catch(() => {
      if (this.#opened === opened) this.#opened = undefined;
    });
    return opened;
  }

  async #connect(): Promise<DataSource> {
    const [preferred, next] = this.#dialect.ownOptions(this.#usersOptions());
    using deadline = new Deadline(OPEN_LIMIT_MS);
    return await persist(this.#dialect, deadline, async () => {
      try {
        return await connect(preferred);
      } catch (cause) {
        if (!next || this.#dialect.faultOf(cause) !== 'setting refused') throw cause;
        return await connect(next);
      }
    });
  }
}

async function connect(options: DataSourceOptions): Promise<DataSource> {
  const source = create(options);
  const opening = source.initialize();
  try {
    if (await atMost(systemClock, OPEN_LIMIT_MS, opening)) return source;
    opening.then(() => source.destroy()).catch(() => undefined);
    throw new NoAnswerInTime(OPEN_LIMIT_MS);
  } catch (cause) {
    // TypeORM leaves its pool open when it got in but could not go on.
    await source.driver.disconnect().catch(() => undefined);
    throw cause;
  }
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
