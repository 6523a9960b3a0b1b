import { DataSource, type DataSourceOptions, type QueryRunner } from 'typeorm';
import { systemClock } from '../../../core/clock.js';
import { LockConfigError } from '../../../core/errors.js';
import { formatReason } from '../../../core/format.js';
import { withTimeout } from '../../../core/requests/store-timeout.js';
import type { Dialect, SendStatement } from '../dialects/dialect.js';
import { addressOf, connectValuesOf } from './connection-options.js';
import { Connection } from './connection.js';
import { Timeout, retryWhileBusy } from './session.js';

const OPEN_TIMEOUT_MS = 10_000;
const CLOSE_TIMEOUT_MS = 1_000;

/** A data source of the backend, and the connections opened with it. */
interface OwnDataSource {
  readonly connectValues: readonly unknown[];
  readonly address: string;
  readonly ready: Promise<DataSource>;
  readonly connections: Set<Connection>;
  /** How many connections are being opened. */
  openingCount: number;
}

/**
 * Opens and closes the backend's connections through TypeORM, apart from those of the application: a lock must neither
 * wait for a free connection of a busy application, nor be part of one of its transactions. Opens nothing before the first
 * {@link connect}.
 */
export class ConnectionFactory {
  readonly #dialect: Dialect;
  readonly #userOptions: () => DataSourceOptions;
  readonly #send: SendStatement;
  /** The current one, and those with former passwords whose connections have not ended. */
  readonly #sources = new Set<OwnDataSource>();
  #currentSource: OwnDataSource | undefined;
  #isClosed = false;

  constructor(dialect: Dialect, userOptions: () => DataSourceOptions) {
    this.#dialect = dialect;
    this.#userOptions = userOptions;
    this.#send = dialect.createSender();
  }

  /** Opens one more connection. Tries a second time if the user's options, such as the password, have changed meanwhile. */
  async connect(): Promise<Connection> {
    const timeout = new Timeout(OPEN_TIMEOUT_MS);
    const source = this.#getSource();
    try {
      return await this.#connectWith(source, timeout);
    } catch (cause) {
      if (this.#isClosed || isSame(source.connectValues, connectValuesOf(this.#userOptions()))) throw cause;
      return await this.#connectWith(this.#getSource(), timeout);
    }
  }

  /** Closes all connections, and destroys those that are still being opened when they arrive. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const sources = [...this.#sources];
    const connections = sources.flatMap((source) => [...source.connections]);
    // Otherwise the process could exit before an unreferenced connection has closed.
    for (const connection of connections) connection.setKeepsProcessAlive(true);
    // A pool may report that it is closed while its connections still wait for a silent database.
    const closed = Promise.allSettled(connections.map((connection) => connection.close()))
      .then(() => Promise.allSettled(sources.map(async ({ ready }) => (await ready).destroy())))
      .then(() => Promise.all(connections.map(({ ended }) => ended)));
    if (!(await withTimeout(systemClock, CLOSE_TIMEOUT_MS, closed)))
      for (const connection of connections) connection.destroy();
  }

  async #connectWith(source: OwnDataSource, timeout: Timeout): Promise<Connection> {
    source.openingCount += 1;
    try {
      const runner = (await timeout.within(source.ready)).createQueryRunner('master');
      const connecting = (runner.connect() as Promise<object>).then((driverConnection) =>
        this.#register(source, runner, driverConnection),
      );
      try {
        const connection = await timeout.within(connecting);
        for (const statement of this.#dialect.setupStatements ?? [])
          await connection.openSession(timeout).query(statement);
        return connection;
      } catch (cause) {
        // A connection that opens after the timeout is destroyed too.
        connecting.then((connection) => connection.destroy()).catch(() => undefined);
        throw cause;
      }
    } finally {
      source.openingCount -= 1;
      this.#destroyIfUnused(source);
    }
  }

  #register(source: OwnDataSource, runner: QueryRunner, driverConnection: object): Connection {
    const connection = new Connection({ dialect: this.#dialect, send: this.#send, runner, driverConnection });
    if (this.#isClosed) {
      connection.destroy();
      throw new Error('the connection was opened after the backend had been closed');
    }
    source.connections.add(connection);
    void connection.ended.then(() => {
      source.connections.delete(connection);
      this.#destroyIfUnused(source);
    });
    return connection;
  }

  /**
   * Reads the user's options each time, because passwords are rotated while a process runs. A new address is ignored: locks
   * in two databases would have two holders.
   */
  #getSource(): OwnDataSource {
    if (this.#isClosed) throw new Error('the connections to the database were closed');
    const options = this.#userOptions();
    const [connectValues, address] = [connectValuesOf(options), addressOf(options)];
    const former = this.#currentSource;
    if (former && (isSame(former.connectValues, connectValues) || former.address !== address)) return former;
    const source: OwnDataSource = {
      connectValues,
      address,
      ready: this.#initialize(options),
      connections: new Set(),
      openingCount: 0,
    };
    this.#currentSource = source;
    this.#sources.add(source);
    if (former) this.#destroyIfUnused(former);
    source.ready.catch(() => {
      this.#sources.delete(source);
      if (this.#currentSource === source) this.#currentSource = undefined;
    });
    return source;
  }

  /** Connections with a former password stay in use until they end. */
  #destroyIfUnused(source: OwnDataSource): void {
    if (this.#isClosed || this.#currentSource === source || source.connections.size + source.openingCount > 0)
      return;
    this.#sources.delete(source);
    source.ready.then((former) => former.destroy()).catch(() => undefined);
  }

  async #initialize(options: DataSourceOptions): Promise<DataSource> {
    const [preferred, next] = this.#dialect.connectionOptions(options);
    const timeout = new Timeout(OPEN_TIMEOUT_MS);
    return await retryWhileBusy(this.#dialect, timeout, async () => {
      try {
        return await initialize(this.#dialect, preferred);
      } catch (cause) {
        if (!next || this.#dialect.classifyError(cause) !== 'setting refused') throw cause;
        return await initialize(this.#dialect, next);
      }
    });
  }
}

const isSame = (one: readonly unknown[], other: readonly unknown[]): boolean =>
  one.length === other.length && one.every((part, index) => Object.is(part, other[index]));

async function initialize(dialect: Dialect, options: DataSourceOptions): Promise<DataSource> {
  const source = createDataSource(options);
  const opening = source.initialize();
  try {
    await new Timeout(OPEN_TIMEOUT_MS).within(opening);
    return source;
  } catch (cause) {
    // If it opens after the timeout.
    opening.then(() => source.destroy()).catch(() => undefined);
    await disconnect(dialect, source);
    throw cause;
  }
}

/**
 * TypeORM leaves its pool open if `initialize` fails after it has connected. The pool in turn may wait for ever for a silent
 * connection, so its sockets are destroyed after {@link CLOSE_TIMEOUT_MS}.
 */
async function disconnect({ connectionsOf, socketOf }: Dialect, { driver }: DataSource): Promise<void> {
  const closed = driver.disconnect().catch(() => undefined);
  if (await withTimeout(systemClock, CLOSE_TIMEOUT_MS, closed)) return;
  for (const driverConnection of connectionsOf?.(driver) ?? []) socketOf(driverConnection)?.destroy();
}

function createDataSource(options: DataSourceOptions): DataSource {
  try {
    return new DataSource(options);
  } catch (cause) {
    throw new LockConfigError(
      `typeormBackend: TypeORM does not accept the options of its dataSource (${formatReason(cause)}).`,
      { cause },
    );
  }
}
