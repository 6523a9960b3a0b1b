import { type Hold, byKey } from '../history.js';

/** A fencing token that is not larger than one that was given out before it was asked for, or that two have. */
export interface NotGrown {
  readonly key: string;
  readonly before: Hold;
  readonly after: Hold;
}

/** The law of fencing tokens, in the order of real time: who asks after a grant gets a larger one, and no two get the same. */
export function notGrowing(holds: readonly Hold[]): NotGrown[] {
  return [...byKey(holds).values()].flatMap((ofKey) => {
    const asked = ofKey.toSorted((one, other) => one.askedAtMs - other.askedAtMs);
    const granted = ofKey.toSorted((one, other) => one.fromMs - other.fromMs);
    const found = twins(ofKey);
    let newest: Hold | undefined;
    let next = 0;
    for (const after of asked) {
      for (let hold = granted[next]; hold && hold.fromMs < after.askedAtMs; hold = granted[++next]) {
        if (!newest || hold.fencingToken > newest.fencingToken) newest = hold;
      }
      if (newest && newest.fencingToken > after.fencingToken)
        found.push({ key: after.key, before: newest, after });
    }
    return found;
  });
}

function twins(ofKey: readonly Hold[]): NotGrown[] {
  const seen = new Map<bigint, Hold>();
  return ofKey.flatMap((after) => {
    const before = seen.get(after.fencingToken);
    seen.set(after.fencingToken, after);
    return before ? [{ key: after.key, before, after }] : [];
  });
}
