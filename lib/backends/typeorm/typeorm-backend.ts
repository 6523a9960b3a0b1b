import {
  type AcquireAnswer,
  type AcquireRequest,
  type Answers,
  type Claim,
  type LockBackend,
  type LockRecord,
  type ReleaseAnswer,
  type RenewAnswer,
  type RenewRequest,
  type Requests,
  type Unknown,
  neverSent,
  unknown,
} from '../../core/backend.js';
import { Deadline } from './deadline.js';
import type { Dialect, Query, Statements } from './dialect.js';
import { dialectOf } from './dialects.js';
import { LockTable } from './lock-table.js';
import { type TypeormBackendOptions, settingsFrom } from './options.js';
import { OwnConnections } from './own-connections.js';
import { RACED, persist } from './persist.js';
import { recordFrom, refusal } from './seen.js';
import { parseTable, quoted } from './table-name.js';

/** One connection, and how long it may be used. */
interface Visit {
  readonly query: Query;
  readonly deadline: Deadline;
}

/**
 * Keeps locks in one table of a database that the user already runs. A grant is a conditional write of the key's row
 * which raises its version, and the version is the fencing token. Time is the database's.
 */
export class TypeormBackend implements LockBackend {
  readonly name: string;
  readonly #dialect: Dialect;
  readonly #connections: OwnConnections;
  readonly #table: LockTable;
  readonly #statements: Statements;

  /**
   * Opens nothing yet.
   *
   * @throws LockConfigError
   */
  constructor(options: TypeormBackendOptions) {
    const { type, usersOptions, table, createTable } = settingsFrom(options);
    this.name = type;
    this.#dialect = dialectOf(type);
    const inSql = quoted(parseTable(table), usersOptions(), this.#dialect.quote);
    this.#connections = new OwnConnections(this.#dialect, usersOptions);
    this.#table = new LockTable({ dialect: this.#dialect, table: inSql, createTable });
    this.#statements = this.#dialect.on(inSql);
  }

  async exchange({ release = [], renew = [], acquire = [] }: Requests, limitMs: number): Promise<Answers> {
    let wasSent = false as boolean;
    try {
      return await this.#visit(limitMs, async (visit) => {
        wasSent = true;
        return {
          release: await inTurn(release, (claim) => this.#release(visit, claim)),
          renew: await inTurn(renew, (request) => this.#renew(visit, request)),
          acquire: await inTurn(acquire, (request) => this.#acquire(visit, request)),
        };
      });
    } catch (cause) {
      if (wasSent) throw cause;
      const never = neverSent(cause);
      return {
        release: release.map(() => never),
        renew: renew.map(() => never),
        acquire: acquire.map(() => never),
      };
    }
  }

  inspect(key: string, limitMs: number): Promise<LockRecord | null> {
    return this.#visit(limitMs, async (visit) =>
      recordFrom(await this.#persist(visit, () => this.#statements.look(visit.query, key))),
    );
  }

  forceRelease(key: string, fencingToken: bigint, limitMs: number): Promise<boolean> {
    return this.#visit(limitMs, (visit) =>
      this.#persist(visit, () => this.#statements.forceRelease(visit.query, key, fencingToken)),
    );
  }

  async check(limitMs: number): Promise<void> {
    using deadline = new Deadline(limitMs);
    await this.#connections.use(deadline, (query) => this.#table.look(query, deadline));
  }

  close(): Promise<void> {
    return this.#connections.close();
  }

  #acquire(visit: Visit, request: AcquireRequest): Promise<AcquireAnswer> {
    return this.#answer(async () => {
      const answer = await persist(this.#dialect, visit.deadline, async () => {
        const granting = await this.#statements.grant(visit.query, request);
        if ('seen' in granting) return refusal(request, granting.seen) ?? RACED;
        return { kind: 'granted', ...granting } as const;
      });
      // Each race was lost to somebody who was granted the key.
      return answer === RACED ? { kind: 'taken', remainingMs: 0 } : answer;
    });
  }

  #renew(visit: Visit, request: RenewRequest): Promise<RenewAnswer> {
    return this.#answer(async () => {
      const isOurs = await this.#persist(visit, () => this.#statements.renew(visit.query, request));
      return { kind: isOurs ? 'renewed' : 'lost' };
    });
  }

  #release(visit: Visit, claim: Claim): Promise<ReleaseAnswer> {
    return this.#answer(async () => {
      const wasOurs = await this.#persist(visit, () => this.#statements.release(visit.query, claim));
      return { kind: wasOurs ? 'released' : 'gone' };
    });
  }

  async #answer<Answer>(find: () => Promise<Answer>): Promise<Answer | Unknown> {
    try {
      return await find();
    } catch (cause) {
      this.#table.doubt(cause);
      return unknown(cause);
    }
  }

  #persist<T>({ deadline }: Visit, step: () => Promise<T>): Promise<T> {
    return persist(this.#dialect, deadline, step);
  }

  async #visit<T>(limitMs: number, work: (visit: Visit) => Promise<T>): Promise<T> {
    using deadline = new Deadline(limitMs);
    return await this.#connections.use(deadline, async (query) => {
      await this.#table.ensure(query, deadline);
      return work({ query, deadline });
    });
  }
}

/**
 * Keeps locks in a PostgreSQL, MySQL, MariaDB or SQLite database, over a small connection pool of its own.
 *
 * @throws LockConfigError when an option is wrong or the database's type is not supported
 */
export const typeormBackend = (options: TypeormBackendOptions): TypeormBackend => new TypeormBackend(options);

/** In turn, because they share a connection. */
async function inTurn<T, Answer>(items: readonly T[], ask: (item: T) => Promise<Answer>): Promise<Answer[]> {
  const answers: Answer[] = [];
  for (const item of items) answers.push(await ask(item));
  return answers;
}
