import { DataSource, type DataSourceOptions, type QueryRunner } from 'typeorm';
import { atMost } from '../../core/at-most.js';
import { systemClock } from '../../core/clock.js';
import { LockConfigError } from '../../core/errors.js';
import { NoAnswerInTime } from '../../core/no-answer-in-time.js';
import { reasonOf } from '../../core/shown.js';
import { Deadline } from './deadline.js';
import type { Dialect, Send } from './dialect.js';
import { Link } from './link.js';
import { addressOf, wayOf } from './own-options.js';
import { persist } from './persist.js';

const OPEN_LIMIT_MS = 10_000;
const CLOSE_LIMIT_MS = 1_000;

/** A data source of ours, and the connections made with it. */
interface Source {
  readonly way: readonly unknown[];
  readonly address: string;
  readonly ready: Promise<DataSource>;
  readonly links: Set<Link>;
  /** How many connections are being opened with it. */
  opening: number;
}

/**
 * A few connections beside the user's: a lock must not wait for a free one of a busy application, nor stand or fall
 * with somebody's transaction. TypeORM opens and closes them. Nothing is opened before the first is asked for.
 */
export class OwnConnections {
  readonly #dialect: Dialect;
  readonly #usersOptions: () => DataSourceOptions;
  readonly #send: Send;
  /** The newest one, and those of former passwords whose connections have not ended. */
  readonly #sources = new Set<Source>();
  #source: Source | undefined;
  #isClosed = false;

  constructor(dialect: Dialect, usersOptions: () => DataSourceOptions) {
    this.#dialect = dialect;
    this.#usersOptions = usersOptions;
    this.#send = dialect.sender();
  }

  /** Opens one more; once again where the password has been changed meanwhile. */
  async connect(): Promise<Link> {
    using deadline = new Deadline(OPEN_LIMIT_MS);
    const source = this.#open();
    try {
      return await this.#connectWith(source, deadline);
    } catch (cause) {
      if (this.#isClosed || isSame(source.way, wayOf(this.#usersOptions()))) throw cause;
      return await this.#connectWith(this.#open(), deadline);
    }
  }

  /** Leaves nothing behind, nor does what is still being opened. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const sources = [...this.#sources];
    const links = sources.flatMap((source) => [...source.links]);
    for (const link of links) link.setAwaited(true); // What keeps no process alive would not be waited for either.
    // A pool may say that it is closed while its connections still wait for a silent database.
    const closed = Promise.allSettled(links.map((link) => link.release()))
      .then(() => Promise.allSettled(sources.map(async ({ ready }) => (await ready).destroy())))
      .then(() => Promise.all(links.map(({ ended }) => ended)));
    if (!(await atMost(systemClock, CLOSE_LIMIT_MS, closed))) for (const link of links) link.giveUp();
  }

  async #connectWith(source: Source, deadline: Deadline): Promise<Link> {
    source.opening += 1;
    try {
      const runner = (await deadline.within(source.ready)).createQueryRunner('master');
      const linking = (runner.connect() as Promise<object>).then((connection) =>
        this.#link(source, runner, connection),
      );
      try {
        const link = await deadline.within(linking);
        for (const statement of this.#dialect.greeting ?? []) await link.visit(deadline).query(statement);
        return link;
      } catch (cause) {
        linking.then((link) => link.giveUp()).catch(() => undefined); // Also one that comes too late.
        throw cause;
      }
    } finally {
      source.opening -= 1;
      this.#destroyIfLeft(source);
    }
  }

  #link(source: Source, runner: QueryRunner, connection: object): Link {
    const link = new Link({ dialect: this.#dialect, send: this.#send, runner, connection });
    if (this.#isClosed) {
      link.giveUp();
      throw new Error('the connection came when it was no longer wanted');
    }
    source.links.add(link);
    void link.ended.then(() => {
      source.links.delete(link);
      this.#destroyIfLeft(source);
    });
    return link;
  }

  /** With the user's options of this moment: passwords are rotated while a process runs. */
  #open(): Source {
    if (this.#isClosed) throw new Error('the connections to the database were closed');
    const options = this.#usersOptions();
    const [way, address] = [wayOf(options), addressOf(options)];
    const former = this.#source;
    if (former && (isSame(former.way, way) || former.address !== address)) return former;
    const source: Source = { way, address, ready: this.#connect(options), links: new Set(), opening: 0 };
    this.#source = source;
    this.#sources.add(source);
    if (former) this.#destroyIfLeft(former);
    source.ready.catch(() => {
      this.#sources.delete(source);
      if (this.#source === source) this.#source = undefined;
    });
    return source;
  }

  /** The connections of a former password are used until they end. */
  #destroyIfLeft(source: Source): void {
    if (this.#isClosed || this.#source === source || source.links.size + source.opening > 0) return;
    this.#sources.delete(source);
    source.ready.then((former) => former.destroy()).catch(() => undefined);
  }

  async #connect(options: DataSourceOptions): Promise<DataSource> {
    const [preferred, next] = this.#dialect.ownOptions(options);
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

const isSame = (one: readonly unknown[], other: readonly unknown[]): boolean =>
  one.length === other.length && one.every((part, index) => Object.is(part, other[index]));

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
