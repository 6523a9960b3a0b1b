import type { BatchResult } from '../../../core/backend.js';
import type { Taken } from '../../../core/backend-results.js';
import { type UnknownResult, neverSentResult, unknownResult } from '../../../core/unknown-result.js';
import type { Dialect } from '../dialects/dialect.js';
import type { Session } from '../connections/session.js';

export type StatementResult = BatchResult[keyof BatchResult][number];

/** One request of a batch, until its result is final. */
export interface StatementRequest<Request = unknown> {
  readonly request: Request;
  wasSent: boolean;
  /** The statement has been handed to the driver. */
  onSent?(): void;
  /** Called once, as soon as the result is final. */
  onResult(result: StatementResult): void;
}

/** Requests that one statement executes. An error concerns all of them. */
export interface StatementGroup<Request = unknown> {
  readonly requests: readonly StatementRequest<Request>[];
  /** Hands its first statement to the driver before it returns. Resolves to results in the order of the requests; `undefined` if another transaction changed the row after it was read. */
  run(requests: readonly Request[]): Promise<readonly (StatementResult | undefined)[]>;
}

/** A group to execute again, and the result of its requests if no time is left for that. */
interface Retry {
  readonly group: StatementGroup;
  readonly result: UnknownResult | Taken;
}

/** A race is lost only to another holder that was granted the key. */
const LOST_RACE: Taken = { kind: 'taken', remainingMs: 0 };

/**
 * Executes each group in one statement. Until the timeout ends, requests that lost a race are executed again, after a random
 * pause. A group that other transactions blocked is retried in two halves, because perhaps only one of its rows was locked.
 * A group with a value that the database rejects is halved and executed again without a pause.
 */
export async function executeGroups(
  dialect: Pick<Dialect, 'classifyError'>,
  session: Pick<Session, 'timeout' | 'throwIfEnded'>,
  groups: readonly StatementGroup[],
): Promise<void> {
  let next = groups;
  for (let attempt = 1; ; attempt += 1) {
    const retries: Retry[] = [];
    for (const group of next) retries.push(...(await executeOnce(dialect, session, group)));
    if (retries.length === 0) return;
    if (!(await session.timeout.pauseAfter(attempt))) {
      for (const { group, result } of retries) report(group, result);
      return;
    }
    next = retries.map(({ group }) => group);
  }
}

/** Reports the results that are final, and returns the rest. */
async function executeOnce(
  dialect: Pick<Dialect, 'classifyError'>,
  session: Pick<Session, 'throwIfEnded'>,
  group: StatementGroup,
): Promise<readonly Retry[]> {
  const { requests } = group;
  let results: readonly (StatementResult | undefined)[];
  try {
    session.throwIfEnded();
    for (const request of requests) request.wasSent = true;
    const running = group.run(requests.map(({ request }) => request));
    for (const request of requests) request.onSent?.();
    results = await running;
  } catch (cause) {
    const errorKind = dialect.classifyError(cause);
    const result = unknownResult(cause);
    if (errorKind === 'busy') return halvesOf(group).map((half) => ({ group: half, result }));
    if (errorKind === 'value' && requests.length > 1) {
      const retries: Retry[] = [];
      for (const half of halvesOf(group)) retries.push(...(await executeOnce(dialect, session, half)));
      return retries;
    }
    report(group, result);
    return [];
  }
  const raced: StatementRequest[] = [];
  for (const [index, request] of requests.entries()) {
    const result = results[index];
    if (result) request.onResult(result);
    else raced.push(request);
  }
  return raced.length > 0 ? [{ group: { ...group, requests: raced }, result: LOST_RACE }] : [];
}

function report({ requests }: StatementGroup, result: UnknownResult | Taken): void {
  for (const request of requests) {
    const wasNeverSent = result.kind === 'unknown' && !request.wasSent;
    request.onResult(wasNeverSent ? neverSentResult(result.cause) : result);
  }
}

function halvesOf(group: StatementGroup): readonly StatementGroup[] {
  const { requests } = group;
  const middle = Math.ceil(requests.length / 2);
  return [requests.slice(0, middle), requests.slice(middle)]
    .filter((half) => half.length > 0)
    .map((half) => ({ ...group, requests: half }));
}
