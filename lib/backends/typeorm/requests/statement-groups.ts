import { type UnknownResult, unknownResult } from '../../../core/backend.js';
import type { Dialect } from '../dialects/dialect.js';
import { MAX_ATTEMPTS, backoffMs } from './retry-while-busy.js';
import type { Timeout } from './timeout.js';

/** The result of a request that lost a race: another transaction changed the row between reading and writing. */
export const RACED: unique symbol = Symbol('raced');

type AttemptResult<Result> = Result | UnknownResult | typeof RACED;

interface GroupExecution<Request, Result> {
  readonly dialect: Pick<Dialect, 'classifyError'>;
  readonly timeout: Timeout;
  /** One statement executes all requests of a group, and an error concerns all of them. */
  readonly groups: readonly (readonly Request[])[];
  /** Returns results in the order of the requests. */
  execute(group: readonly Request[]): Promise<readonly (Result | typeof RACED)[]>;
  /** Called once for each request, as soon as its result is final. */
  onResult(request: Request, result: AttemptResult<Result>): void;
}

/**
 * Executes each group in one statement. Until the timeout ends, requests that lost a race are executed again, after a random
 * pause. A group that other transactions blocked is retried in two halves, because perhaps only one of its rows was locked.
 * A group with a value that the database rejects is halved and executed again without a pause.
 */
export async function executeGroups<Request, Result>(
  execution: GroupExecution<Request, Result>,
): Promise<void> {
  let { groups } = execution;
  for (let attempt = 1; ; attempt += 1) {
    const unresolved = new Map<Request, AttemptResult<Result>>();
    const nextGroups: (readonly Request[])[] = [];
    for (const group of groups) {
      const failed = await executeOnce(execution, group);
      for (const [request, result] of failed) unresolved.set(request, result);
      nextGroups.push(...groupsToRetry(failed));
    }
    if (unresolved.size === 0) return;
    if (attempt >= MAX_ATTEMPTS || !(await execution.timeout.pause(backoffMs(attempt)))) {
      for (const [request, result] of unresolved) execution.onResult(request, result);
      return;
    }
    groups = nextGroups;
  }
}

/** Reports final results through `onResult`, and returns the requests that may be retried, with their result so far. */
async function executeOnce<Request, Result>(
  execution: GroupExecution<Request, Result>,
  group: readonly Request[],
): Promise<readonly (readonly [Request, AttemptResult<Result>])[]> {
  const { dialect, execute, onResult } = execution;
  try {
    const results = await execute(group);
    const raced = group.filter((_, index) => results[index] === RACED);
    group.forEach((request, index) => {
      const result = results[index] ?? RACED;
      if (result !== RACED) onResult(request, result);
    });
    return raced.map((request) => [request, RACED]);
  } catch (cause) {
    const errorKind = dialect.classifyError(cause);
    if (errorKind === 'busy') return group.map((request) => [request, unknownResult(cause)]);
    if (errorKind === 'value' && group.length > 1) {
      const [some, others] = halvesOf(group) as [readonly Request[], readonly Request[]];
      return [...(await executeOnce(execution, some)), ...(await executeOnce(execution, others))];
    }
    for (const request of group) onResult(request, unknownResult(cause));
    return [];
  }
}

function groupsToRetry<Request>(
  failed: readonly (readonly [Request, unknown])[],
): readonly (readonly Request[])[] {
  const requests = failed.map(([request]) => request);
  const [first] = failed;
  if (first?.[1] === RACED) return [requests];
  return halvesOf(requests);
}

function halvesOf<Item>(items: readonly Item[]): readonly (readonly Item[])[] {
  const middle = Math.ceil(items.length / 2);
  return [items.slice(0, middle), items.slice(middle)].filter((half) => half.length > 0);
}
