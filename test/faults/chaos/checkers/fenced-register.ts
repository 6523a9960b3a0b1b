import { type Hold, groupByKey, endOf } from '../workers/history.js';
import type { InjectedFault } from '../injected-fault.js';

/** What the thing that is written to under locks heard, in its order. */
export interface Attempt {
  readonly key: string;
  readonly op: string;
  readonly verb: 'read' | 'write';
  readonly fencingToken: bigint;
  readonly wasAccepted: boolean;
  /** When it arrived. */
  readonly atMs: number;
}

export interface RegisterVerdict {
  readonly accepted: number;
  /** Came with an older token than the newest seen. */
  readonly refused: number;
  /** Accepted after one with a larger token, or between two of somebody else. */
  readonly stale: readonly Attempt[];
  /** Refused although the lock was valid when they arrived, outside of any strike beyond the guarantee. */
  readonly wronglyRefused: readonly Attempt[];
}

/** Nobody who is behind in the order of fencing tokens is heard, and everybody whose lock is valid is. */
export function checkRegister(
  attempts: readonly Attempt[],
  holds: readonly Hold[],
  faults: readonly InjectedFault[],
): RegisterVerdict {
  const outside = faults.filter(({ isInsideGuarantee }) => !isInsideGuarantee);
  const holdOf = new Map(holds.map((hold) => [hold.op, hold]));
  const isValidAt = ({ op, atMs }: Attempt) => {
    const hold = holdOf.get(op);
    return hold !== undefined && hold.fromMs <= atMs && atMs < endOf(hold);
  };
  const mayBeLost = ({ op, atMs }: Attempt) =>
    outside.some(({ startedAtMs, healedAtMs }) => {
      const { fromMs, leaseMs } = holdOf.get(op)!;
      return fromMs <= healedAtMs + leaseMs && atMs >= startedAtMs;
    });
  const accepted = attempts.filter(({ wasAccepted }) => wasAccepted);
  const refused = attempts.filter(({ wasAccepted }) => !wasAccepted);
  return {
    accepted: accepted.length,
    refused: refused.length,
    stale: [...groupByKey(accepted).values()].flatMap(findStale),
    wronglyRefused: refused.filter((attempt) => isValidAt(attempt) && !mayBeLost(attempt)),
  };
}

function findStale(ofKey: readonly Attempt[]): Attempt[] {
  const over = new Set<string>();
  let newest: Attempt | undefined;
  return ofKey.filter((attempt) => {
    if (newest && newest.op !== attempt.op) over.add(newest.op);
    const isStale =
      newest !== undefined && (attempt.fencingToken < newest.fencingToken || over.has(attempt.op));
    if (!newest || attempt.fencingToken >= newest.fencingToken) newest = attempt;
    return isStale;
  });
}
