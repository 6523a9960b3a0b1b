import type {
  AcquireRequest,
  OnResult,
  ReleaseRequest,
  RenewRequest,
  RequestBatch,
  TickRequest,
} from '../../../core/backend.js';
import type { AcquireResult } from '../../../core/backend-results.js';
import { neverSentResult } from '../../../core/unknown-result.js';
import { systemClock } from '../../../core/clock.js';
import type { Dialect, Statements } from '../dialects/dialect.js';
import type { Session } from '../connections/session.js';
import type { LockTable } from '../table/lock-table.js';
import {
  type StatementGroup,
  type StatementRequest,
  type StatementResult,
  executeGroups,
} from './statement-groups.js';
import { StoreClock } from './store-clock.js';
import { claimTick } from './tick-claims.js';

interface StatementExecutorParts {
  readonly dialect: Pick<Dialect, 'classifyError' | 'sendsAtOnce'>;
  readonly table: LockTable;
  readonly statements: Statements;
}

/** Does the work in a session. Rejects if there is no connection for it. */
type UseSession = (work: (session: Session) => Promise<void>) => Promise<void>;

/** As for `execute` of a backend. */
interface BatchListener {
  readonly onResult: OnResult;
  readonly onReleaseSent?: ((index: number) => void) | undefined;
}

type Report = (kind: keyof RequestBatch, index: number, result: StatementResult) => void;

/** The list of a batch to which a request belongs. */
interface RequestList {
  readonly kind: keyof RequestBatch;
  readonly report: Report;
  readonly onSent?: ((index: number) => void) | undefined;
}

class BatchRequest<Request> implements StatementRequest<Request> {
  readonly request: Request;
  wasSent = false;
  readonly #list: RequestList;
  readonly #index: number;

  constructor(request: Request, list: RequestList, index: number) {
    this.request = request;
    this.#list = list;
    this.#index = index;
  }

  onSent(): void {
    this.#list.onSent?.(this.#index);
  }

  onResult(result: StatementResult): void {
    this.#list.report(this.#list.kind, this.#index, result);
  }
}

interface PendingBatch {
  readonly release: readonly StatementRequest<ReleaseRequest>[];
  readonly renew: readonly StatementRequest<RenewRequest>[];
  readonly acquire: readonly StatementRequest<AcquireRequest>[];
}

/** Executes a batch over one connection: releases first, then renewals, then acquisitions, one statement for each kind. */
export class StatementExecutor {
  readonly #parts: StatementExecutorParts;
  readonly #clock = new StoreClock();

  constructor(parts: StatementExecutorParts) {
    this.#parts = parts;
  }

  /** Reports each result as soon as it is final. Never rejects: an error becomes the result of the requests that it concerns. */
  async execute(
    batch: RequestBatch,
    useSession: UseSession,
    { onResult, onReleaseSent }: BatchListener,
  ): Promise<void> {
    const { dialect, table } = this.#parts;
    const report: Report = (kind, index, result) => {
      if ('cause' in result) table.onStatementError(result.cause);
      onResult(kind, index, result as never);
    };
    const pending = <Request>(kind: keyof RequestBatch, requests: readonly Request[] = []) => {
      const onSent = kind === 'release' && dialect.sendsAtOnce ? onReleaseSent : undefined;
      const list = { kind, report, onSent };
      return requests.map((request, index) => new BatchRequest(request, list, index));
    };
    const release = pending('release', batch.release);
    const renew = pending('renew', batch.renew);
    const acquire = pending('acquire', batch.acquire);
    try {
      await useSession((session) => this.#run({ release, renew, acquire }, session));
    } catch (cause) {
      for (const request of [...release, ...renew, ...acquire]) request.onResult(neverSentResult(cause));
    }
  }

  async #run({ release, renew, acquire }: PendingBatch, session: Session): Promise<void> {
    const { dialect, table, statements } = this.#parts;
    await table.ensureReady(session);
    const runEnds = release.filter(({ request }) => request.hasEnded);
    const releases = release.filter(({ request }) => !request.hasEnded);
    const ticks = acquire.filter(hasTick);
    const acquisitions = acquire.filter((request) => !hasTick(request));
    const parts = { statements, session, clock: this.#clock };
    await executeGroups(dialect, session, [
      ...together(releases, (requests) => statements.release(session, requests)),
      ...separately(runEnds, (runEnd) => statements.releaseEndedRun(session, runEnd)),
      ...together(renew, (renewals) => statements.renew(session, renewals)),
      ...together(acquisitions, (requests) => this.#acquire(session, requests)),
      ...separately(ticks, (tick) => claimTick(parts, tick)),
    ]);
    if (acquisitions[0]) await this.#updateClock(session, acquisitions[0].request.key);
  }

  async #acquire(
    session: Session,
    requests: readonly AcquireRequest[],
  ): Promise<readonly (AcquireResult | undefined)[]> {
    const notAfterUs = this.#clock.storeTimeAt(session.timeout.endsAtMs);
    const sentAtMs = systemClock.monotonicMs();
    const { nowUs, results } = await this.#parts.statements.acquire(session, requests, notAfterUs);
    if (nowUs !== undefined) this.#clock.update(nowUs, sentAtMs);
    return results;
  }

  /** Reads the database's clock, unless a result has contained it lately. */
  async #updateClock(session: Session, key: string): Promise<void> {
    const sentAtMs = systemClock.monotonicMs();
    if (!this.#clock.needsUpdateAt(sentAtMs)) return;
    try {
      const { nowUs } = await this.#parts.statements.readRow(session, key);
      this.#clock.update(nowUs, sentAtMs);
    } catch {
      // The next acquisition tries again.
    }
  }
}

const hasTick = (pending: StatementRequest<AcquireRequest>): pending is StatementRequest<TickRequest> =>
  pending.request.tick !== undefined;

/** One statement for all requests. */
const together = <Request>(
  requests: readonly StatementRequest<Request>[],
  run: StatementGroup<Request>['run'],
): readonly StatementGroup[] => (requests.length > 0 ? [{ requests, run }] : []);

/** A statement for each request, which must not be repeated because of the others. */
const separately = <Request>(
  requests: readonly StatementRequest<Request>[],
  runOne: (request: Request) => Promise<StatementResult | undefined>,
): readonly StatementGroup[] =>
  requests.flatMap((request) => together([request], (list) => Promise.all(list.map(runOne))));
