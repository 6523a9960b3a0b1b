import {
  type AcquireRequest,
  type AcquireResult,
  type OnResult,
  type ReleaseResult,
  type RenewResult,
  type RequestBatch,
  type TickRequest,
  type UnknownResult,
  neverSentResult,
} from '../../../core/backend.js';
import { systemClock } from '../../../core/clock.js';
import type { Dialect, Session, Statements } from '../dialects/dialect.js';
import { type GrantOutcome, takenResultFrom } from '../table/lock-row.js';
import type { LockTable } from '../table/lock-table.js';
import { type StatementGroup, type StatementRequest, RACED, executeGroups } from './statement-groups.js';
import { StoreClock } from './store-clock.js';
import { claimTick } from './tick-claim.js';

interface StatementExecutorParts {
  readonly dialect: Dialect;
  readonly table: LockTable;
  readonly statements: Statements;
}

/** Does the work in a session. Rejects if there is no connection for it. */
type UseSession = (work: (session: Session) => Promise<void>) => Promise<void>;

type BatchRequests = ReturnType<typeof toStatementRequests>;

/** Executes a batch over one connection: releases first, then renewals, then acquisitions, one statement for each kind. */
export class StatementExecutor {
  readonly #parts: StatementExecutorParts;
  readonly #clock = new StoreClock();

  constructor(parts: StatementExecutorParts) {
    this.#parts = parts;
  }

  /** Reports each result as soon as it is final. Never rejects: an error becomes the result of the requests that it concerns. */
  async execute(batch: RequestBatch, useSession: UseSession, onResult: OnResult): Promise<void> {
    const requests = toStatementRequests(batch, (kind, index, result) => {
      if ('cause' in result) this.#parts.table.onStatementError(result.cause);
      onResult(kind, index, result);
    });
    try {
      await useSession((session) => this.#run(requests, session));
    } catch (cause) {
      const { release, renew, acquire } = requests;
      for (const request of [...release, ...renew, ...acquire]) request.onResult(neverSentResult(cause));
    }
  }

  async #run({ release, renew, acquire }: BatchRequests, session: Session): Promise<void> {
    const { dialect, table, statements } = this.#parts;
    if (!table.isReady) await table.ensureReady(session);
    const runEnds = release.filter(({ request }) => request.hasEnded);
    const releases = release.filter(({ request }) => !request.hasEnded);
    const ticks = acquire.filter(hasTick);
    const acquisitions = acquire.filter((request) => !hasTick(request));
    const claim = { statements, session, clock: this.#clock };
    let keyWithoutTime: string | undefined;
    await executeGroups(dialect, session, [
      ...together(releases, (claims) => statements.release(session, claims)),
      ...separately(runEnds, (runEnd) => statements.releaseEndedRun(session, runEnd)),
      ...together(renew, (renewals) => statements.renew(session, renewals)),
      ...together(acquisitions, (list) => this.#acquire(session, list, (key) => (keyWithoutTime = key))),
      ...separately(ticks, (tick) => claimTick(claim, tick)),
    ]);
    if (keyWithoutTime !== undefined) await this.#readStoreTime(session, keyWithoutTime);
  }

  async #acquire(
    session: Session,
    requests: readonly AcquireRequest[],
    onGrantWithoutTime: (key: string | undefined) => void,
  ): Promise<readonly (AcquireResult | typeof RACED)[]> {
    const notAfterUs = this.#clock.storeTimeAt(session.timeout.endsAtMs);
    const sentAtMs = systemClock.monotonicMs();
    const { nowUs, outcomes } = await this.#parts.statements.acquire(session, requests, notAfterUs);
    if (nowUs === undefined) onGrantWithoutTime(requests[0]?.key);
    else this.#clock.update(nowUs, sentAtMs);
    return requests.map((request, index) => acquireResultFrom(request, outcomes[index]));
  }

  /** A failure does no harm: the next grant without the time triggers another read. */
  async #readStoreTime(session: Session, key: string): Promise<void> {
    const sentAtMs = systemClock.monotonicMs();
    if (!this.#clock.needsUpdateAt(sentAtMs)) return;
    await this.#parts.statements.readRow(session, key).then(
      ({ nowUs }) => this.#clock.update(nowUs, sentAtMs),
      () => undefined,
    );
  }
}

const toStatementRequests = (
  { release = [], renew = [], acquire = [] }: RequestBatch,
  onResult: OnResult,
) => ({
  release: pending(release, (index, result: ReleaseResult) => onResult('release', index, result)),
  renew: pending(renew, (index, result: RenewResult) => onResult('renew', index, result)),
  acquire: pending(acquire, (index, result: AcquireResult) => onResult('acquire', index, result)),
});

const pending = <Request, Result>(
  requests: readonly Request[],
  onResult: (index: number, result: Result | UnknownResult) => void,
): readonly StatementRequest<Request, Result>[] =>
  requests.map((request, index) => ({
    request,
    wasSent: false,
    onResult: (result) => onResult(index, result),
  }));

const hasTick = (
  acquisition: StatementRequest<AcquireRequest, AcquireResult>,
): acquisition is StatementRequest<TickRequest, AcquireResult> => acquisition.request.tick !== undefined;

/** One statement for all requests. */
const together = <Request, Result>(
  requests: readonly StatementRequest<Request, Result>[],
  run: StatementGroup<Request, Result>['run'],
): readonly StatementGroup[] => (requests.length > 0 ? [{ requests, run }] : []);

/** A statement for each request, which must not be repeated because of the others. */
const separately = <Request, Result>(
  requests: readonly StatementRequest<Request, Result>[],
  runOne: (request: Request) => Promise<Result | typeof RACED>,
): readonly StatementGroup[] =>
  requests.flatMap((request) => together([request], (list) => Promise.all(list.map(runOne))));

function acquireResultFrom(request: AcquireRequest, outcome: GrantOutcome): AcquireResult | typeof RACED {
  if (outcome === undefined) return RACED;
  if ('fencingToken' in outcome) return { kind: 'granted', fencingToken: outcome.fencingToken };
  return takenResultFrom(request, outcome.snapshot) ?? RACED;
}
