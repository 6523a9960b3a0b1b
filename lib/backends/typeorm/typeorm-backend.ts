import {
  type Answers,
  type Forgetting,
  type Freed,
  type LockBackend,
  type LockRecord,
  MOST_NOTES,
  type Requests,
} from '../../core/backend.js';
import { Carrier } from './carrier.js';
import type { Dialect, Statements, Table, Visit } from './dialect.js';
import { dialectOf } from './dialects.js';
import { FreedCalls } from './freed-calls.js';
import { Gathering } from './gathering.js';
import { LockTable } from './lock-table.js';
import { type Settings, type TypeormBackendOptions, settingsFrom } from './options.js';
import { OwnConnections } from './own-connections.js';
import { MOST_CONNECTIONS } from './own-options.js';
import { persist } from './persist.js';
import { recordFrom } from './seen.js';
import { parseTable, quoted } from './table-name.js';

/** What is open until it is closed. */
interface Opened {
  readonly connections: OwnConnections;
  readonly gathering: Gathering;
  readonly calls: FreedCalls | undefined;
}

/** A server that takes no writes refuses also those that change nothing. */
const NOBODYS = { key: '', holder: '', leaseMs: 1 };

/**
 * Keeps locks in one table of a database that the user already runs. A grant is a conditional write of the key's row
 * which raises its version, and the version is the fencing token. Time is the database's.
 */
export class TypeormBackend implements LockBackend {
  readonly name: string;
  readonly dataSource: object | undefined;
  readonly #usersOptions: Settings['usersOptions'];
  readonly #dialect: Dialect;
  readonly #table: Table;
  readonly #lockTable: LockTable;
  readonly #statements: Statements;
  readonly #carrier: Carrier;
  readonly #listeners = new Set<(freed: Freed) => void>();
  #opened: Opened | undefined;

  /**
   * Opens nothing yet.
   *
   * @throws LockConfigError
   */
  constructor(options: TypeormBackendOptions) {
    const { type, usersOptions, table, createTable } = settingsFrom(options);
    const name = parseTable(table);
    this.name = type;
    this.dataSource = 'createQueryRunner' in options.dataSource ? options.dataSource : undefined;
    this.#usersOptions = usersOptions;
    this.#dialect = dialectOf(type);
    this.#table = { name: name.name, inSql: quoted(name, usersOptions(), this.#dialect.quote) };
    this.#lockTable = new LockTable({ dialect: this.#dialect, table: this.#table.inSql, createTable });
    this.#statements = this.#dialect.on(this.#table);
    this.#carrier = new Carrier({
      dialect: this.#dialect,
      table: this.#lockTable,
      statements: this.#statements,
    });
  }

  exchange(requests: Requests, limitMs: number): Promise<Answers> {
    const { gathering, calls } = this.#open();
    const exchange = () => gathering.exchange(requests, limitMs);
    const answered = calls ? calls.during(requests, exchange) : exchange();
    return requests.acquire?.some(({ tick }) => tick?.forget)
      ? this.#tidyAfter(answered, requests, limitMs)
      : answered;
  }

  inspect(key: string, limitMs: number): Promise<LockRecord | null> {
    return this.#visit(limitMs, async (visit) => recordFrom(await this.#statements.look(visit, key)));
  }

  forceRelease(key: string, fencingToken: bigint, limitMs: number): Promise<boolean> {
    return this.#visit(limitMs, (visit) => this.#statements.forceRelease(visit, key, fencingToken));
  }

  note(key: string, text: string, limitMs: number): Promise<void> {
    return this.#visit(limitMs, (visit) => this.#statements.note(visit, key, text));
  }

  async notes(key: string, limitMs: number): Promise<readonly string[]> {
    const lines = await this.#visit(limitMs, (visit) => this.#statements.notes(visit, key));
    return lines.split('\n', MOST_NOTES).filter((line) => line !== '');
  }

  async check(limitMs: number): Promise<void> {
    await this.#open().gathering.visit(limitMs, async (visit) => {
      await this.#lockTable.look(visit);
      await this.#lockTable.use(visit, () => this.#statements.renew(visit, [NOBODYS]));
    });
  }

  async advice(limitMs: number): Promise<string | undefined> {
    return this.#visit(limitMs, async (visit) => this.#dialect.advice?.(visit, this.#table));
  }

  /** Calls come from PostgreSQL alone. */
  onFreed(listener: (freed: Freed) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Lets what is under way come to its end, which its limit bounds. */
  async close(): Promise<void> {
    const opened = this.#opened;
    this.#opened = undefined;
    opened?.calls?.close();
    await opened?.gathering.close();
    await opened?.connections.close();
  }

  /** Deletes the rows of ticks that nobody can claim any more, once a newer one was granted. Nobody waits for that. */
  async #tidyAfter(
    answered: Promise<Answers>,
    { acquire = [] }: Requests,
    limitMs: number,
  ): Promise<Answers> {
    const answers = await answered;
    for (const [index, { tick }] of acquire.entries()) {
      if (tick?.forget && answers.acquire[index]?.kind === 'granted') void this.#forget(tick.forget, limitMs);
    }
    return answers;
  }

  async #forget(keys: Forgetting, limitMs: number): Promise<void> {
    if (!this.#opened) return;
    try {
      await this.#visit(limitMs, (visit) => this.#statements.forget(visit, keys));
    } catch {
      // They do no harm, and the next grant tries again.
    }
  }

  #visit<T>(limitMs: number, work: (visit: Visit) => Promise<T>): Promise<T> {
    return this.#open().gathering.visit(limitMs, async (visit) => {
      if (!this.#lockTable.isThere) await this.#lockTable.look(visit);
      return await persist(this.#dialect, visit.deadline, () => work(visit));
    });
  }

  #open(): Opened {
    return (this.#opened ??= this.#openingLater());
  }

  /** The first request that needs a connection opens it. */
  #openingLater(): Opened {
    const connections = new OwnConnections(this.#dialect, this.#usersOptions);
    const connect = () => connections.connect();
    const gathering = new Gathering({
      mostLinks: this.#dialect.isInProcess ? 1 : MOST_CONNECTIONS,
      connect,
      carry: (...trip) => this.#carrier.carry(...trip),
    });
    const { listen } = this.#dialect;
    const calls =
      listen &&
      new FreedCalls({
        connect,
        listen: (connection, onFreed) => listen(connection, this.#table, onFreed),
        onFreed: (freed) => {
          for (const listener of this.#listeners) listener(freed);
        },
      });
    return { connections, gathering, calls };
  }
}

/**
 * Keeps locks in a PostgreSQL, MySQL, MariaDB or SQLite database, over a small connection pool of its own.
 *
 * @throws LockConfigError when an option is wrong or the database's type is not supported
 */
export const typeormBackend = (options: TypeormBackendOptions): TypeormBackend => new TypeormBackend(options);
