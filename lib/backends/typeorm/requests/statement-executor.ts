import {
  type AcquireRequest,
  type AcquireResult,
  type ReleaseRequest,
  type ReleaseResult,
  type TickRequest,
  neverSentResult,
} from '../../../core/backend.js';
import { systemClock } from '../../../core/clock.js';
import type { Dialect, Session, Statements } from '../dialects/dialect.js';
import { type GrantOutcome, takenResultFrom } from '../table/lock-row.js';
import type { LockTable } from '../table/lock-table.js';
import type { PendingRequest, RequestByKind, RequestKind, ResultByKind } from './pending-batch.js';
import { RACED, executeGroups } from './statement-groups.js';
import { StoreClock } from './store-clock.js';
import { claimTick } from './tick-claim.js';

interface StatementExecutorParts {
  readonly dialect: Dialect;
  readonly table: LockTable;
  readonly statements: Statements;
}

type RunStatement<Kind extends RequestKind> = (
  requests: readonly RequestByKind[Kind][],
) => Promise<readonly (ResultByKind[Kind] | typeof RACED)[]>;

interface Execution {
  readonly pendingRequests: readonly PendingRequest[];
  readonly session: Session;
  onStatementEnd(pending: PendingRequest): void;
  /** A key whose grant came without the database's time. */
  keyWithoutTime?: string | undefined;
}

/** Runs pending requests in one session: releases first, then renewals, then acquisitions, one statement for each kind. */
export class StatementExecutor {
  readonly #parts: StatementExecutorParts;
  readonly #clock = new StoreClock();

  constructor(parts: StatementExecutorParts) {
    this.#parts = parts;
  }

  /**
   * Settles each pending request with its result, and calls `onStatementEnd` for it. Never rejects: an error becomes the
   * result of the requests that it concerns.
   */
  async execute(
    pendingRequests: readonly PendingRequest[],
    session: Session,
    onStatementEnd: (pending: PendingRequest) => void = () => undefined,
  ): Promise<void> {
    const { statements, table } = this.#parts;
    try {
      if (!table.isReady) await table.ensureReady(session);
    } catch (cause) {
      for (const pending of pendingRequests) pending.batch.settle(pending, neverSentResult(cause));
      return;
    }
    const execution: Execution = { pendingRequests, session, onStatementEnd };
    await this.#executeKind('release', execution, (claims) => this.#release(session, claims), isRunEnd);
    await this.#executeKind('renew', execution, (requests) => statements.renew(session, requests));
    await this.#executeKind('acquire', execution, (requests) => this.#acquire(execution, requests), hasTick);
    if (execution.keyWithoutTime !== undefined) await this.#readStoreTime(session, execution.keyWithoutTime);
  }

  /** A request that `needsOwnStatement` gets one; all others of the kind share one. */
  async #executeKind<Kind extends RequestKind>(
    kind: Kind,
    { pendingRequests: all, session, onStatementEnd }: Execution,
    runStatement: RunStatement<Kind>,
    needsOwnStatement: (request: RequestByKind[Kind]) => boolean = () => false,
  ): Promise<void> {
    const ofKind = all.filter((pending): pending is PendingRequest<Kind> => pending.kind === kind);
    // A batch that timed out during earlier statements has reported its requests as never sent, so they must not be sent.
    const unexpired = ofKind.filter(({ batch }) => !batch.isSettled);
    for (const pending of ofKind) if (pending.batch.isSettled) onStatementEnd(pending);
    if (unexpired.length === 0) return;
    const shared = unexpired.filter(({ request }) => !needsOwnStatement(request));
    const separate = unexpired
      .filter(({ request }) => needsOwnStatement(request))
      .map((pending) => [pending]);
    await executeGroups<PendingRequest<Kind>, ResultByKind[Kind]>({
      dialect: this.#parts.dialect,
      timeout: session.timeout,
      groups: shared.length > 0 ? [shared, ...separate] : separate,
      execute: async (group) => {
        session.throwIfEnded();
        if (group.every(isExpired)) throw new Error('the timeout ended while earlier requests were executed');
        for (const pending of group) pending.wasSent = true;
        return await runStatement(group.map(({ request }) => request));
      },
      onResult: (pending, result) => {
        pending.batch.settle(pending, finalResult(pending, result));
        if (result !== RACED && result.kind === 'unknown') this.#parts.table.onStatementError(result.cause);
        onStatementEnd(pending);
      },
    });
  }

  #release(session: Session, claims: readonly ReleaseRequest[]): Promise<readonly ReleaseResult[]> {
    const { statements } = this.#parts;
    const runEnds = claims.filter(isRunEnd);
    return runEnds.length > 0
      ? Promise.all(runEnds.map((runEnd) => statements.releaseEndedRun(session, runEnd)))
      : statements.release(session, claims);
  }

  async #acquire(
    execution: Execution,
    requests: readonly AcquireRequest[],
  ): Promise<readonly (AcquireResult | typeof RACED)[]> {
    const { statements } = this.#parts;
    const { session } = execution;
    const ticks = requests.filter(hasTick);
    if (ticks.length > 0) {
      return Promise.all(ticks.map((tick) => claimTick({ statements, session, clock: this.#clock }, tick)));
    }
    const notAfterUs = this.#clock.storeTimeAt(session.timeout.endsAtMs);
    const sentAtMs = systemClock.monotonicMs();
    const { nowUs, outcomes } = await statements.acquire(session, requests, notAfterUs);
    if (nowUs === undefined) execution.keyWithoutTime = requests[0]?.key;
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

const isRunEnd = ({ hasEnded }: ReleaseRequest): boolean => hasEnded === true;

const hasTick = (request: AcquireRequest): request is TickRequest => request.tick !== undefined;

/** Whether its batch has reported it as never sent. */
const isExpired = ({ batch, wasSent }: PendingRequest): boolean => batch.isSettled && !wasSent;

function finalResult<Kind extends RequestKind>(
  { wasSent }: PendingRequest<Kind>,
  result: ResultByKind[Kind] | typeof RACED,
): ResultByKind[RequestKind] {
  // A race is lost only to another holder that was granted the key.
  if (result === RACED) return { kind: 'taken', remainingMs: 0 };
  return result.kind === 'unknown' && !wasSent ? neverSentResult(result.cause) : result;
}

function acquireResultFrom(request: AcquireRequest, outcome: GrantOutcome): AcquireResult | typeof RACED {
  if (outcome === undefined) return RACED;
  if ('fencingToken' in outcome) return { kind: 'granted', fencingToken: outcome.fencingToken };
  return takenResultFrom(request, outcome.snapshot) ?? RACED;
}
