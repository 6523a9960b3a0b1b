import { type Hold, groupByKey } from '../workers/history.js';

/** A fencing token that is not larger than one that was given out before it was asked for, or that two have. */
export interface TokenOrderViolation {
  readonly key: string;
  readonly before: Hold;
  readonly after: Hold;
}

/** The law of fencing tokens, in the order of real time: who asks after a grant gets a larger one, and no two get the same. */
export function findTokenOrderViolations(holds: readonly Hold[]): TokenOrderViolation[] {
  return [...groupByKey(holds).values()].flatMap((ofKey) => {
    const byRequestTime = ofKey.toSorted((one, other) => one.askedAtMs - other.askedAtMs);
    const byGrantTime = ofKey.toSorted((one, other) => one.fromMs - other.fromMs);
    const violations = findDuplicateTokens(ofKey);
    let newest: Hold | undefined;
    let next = 0;
    for (const after of byRequestTime) {
      for (let hold = byGrantTime[next]; hold && hold.fromMs < after.askedAtMs; hold = byGrantTime[++next]) {
        if (!newest || hold.fencingToken > newest.fencingToken) newest = hold;
      }
      if (newest && newest.fencingToken > after.fencingToken)
        violations.push({ key: after.key, before: newest, after });
    }
    return violations;
  });
}

function findDuplicateTokens(ofKey: readonly Hold[]): TokenOrderViolation[] {
  const holdsByToken = new Map<bigint, Hold>();
  return ofKey.flatMap((after) => {
    const before = holdsByToken.get(after.fencingToken);
    holdsByToken.set(after.fencingToken, after);
    return before ? [{ key: after.key, before, after }] : [];
  });
}
