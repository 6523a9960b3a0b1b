import { type Hold, groupByKey, endOf } from '../workers/history.js';
import type { InjectedFault } from '../injected-fault.js';
import { type Model, type Operation, isLinearizable } from './linearizability.js';

type Input = { readonly verb: 'acquire' | 'end'; readonly fencingToken: bigint };

interface State {
  readonly newest: bigint;
  readonly isHeld: boolean;
}

/** A lock that one has at a time, each with a larger fencing token than the one before. */
const fencedMutex: Model<State, Input> = {
  initial: { newest: -1n, isHeld: false },
  step({ newest, isHeld }, { verb, fencingToken }) {
    if (verb === 'acquire') {
      return !isHeld && fencingToken > newest ? { newest: fencingToken, isHeld: true } : undefined;
    }
    return isHeld && fencingToken === newest ? { newest, isHeld: false } : undefined;
  },
  nameOf: ({ newest, isHeld }) => `${newest}${isHeld ? ' held' : ''}`,
};

export interface MutexVerdict {
  /** Keys whose history no lock could have. */
  readonly broken: readonly string[];
  /** Keys that were had several times. */
  readonly checked: number;
  /** Keys that were had once, of which there is little to say. */
  readonly heldOnce: number;
  /** Keys that were left out, as a strike outside of the guarantee met them. */
  readonly leftOut: number;
}

/**
 * Whether each key behaved as one lock. A lease ends when it is given back, or at any time after it has run out; wishes that
 * were not granted do nothing. A key is used for some seconds only, so that the search stays short.
 */
export function checkMutex(holds: readonly Hold[], faults: readonly InjectedFault[]): MutexVerdict {
  const outside = faults.filter(({ isInsideGuarantee }) => !isInsideGuarantee);
  const broken: string[] = [];
  let checked = 0;
  let heldOnce = 0;
  let leftOut = 0;
  for (const [key, ofKey] of groupByKey(holds)) {
    if (outside.some((fault) => overlapsFault(fault, ofKey))) leftOut += 1;
    else {
      if (ofKey.length > 1) checked += 1;
      else heldOnce += 1;
      if (!isLinearizable(ofKey.flatMap(operationsOf), fencedMutex)) broken.push(key);
    }
  }
  return { broken, checked, heldOnce, leftOut };
}

const overlapsFault = ({ startedAtMs, healedAtMs }: InjectedFault, ofKey: readonly Hold[]): boolean =>
  ofKey.some((hold) => hold.askedAtMs <= healedAtMs && endsFromMs(hold) >= startedAtMs);

function operationsOf(hold: Hold): Operation<Input>[] {
  const { fencingToken, askedAtMs, fromMs, released, releasedAtMs = Infinity } = hold;
  // Where nothing of it was valid, the store may have taken it back before it was heard of.
  const mayEndFromMs = endOf(hold) <= fromMs ? askedAtMs : endsFromMs(hold);
  return [
    { callMs: askedAtMs, returnMs: fromMs, input: { verb: 'acquire', fencingToken } },
    {
      callMs: mayEndFromMs,
      returnMs: released === 'ours' ? releasedAtMs : Infinity,
      input: { verb: 'end', fencingToken },
    },
  ];
}

/** A killed holder keeps the lock for the rest of its lease. */
const endsFromMs = ({ killedAtMs: _, ...hold }: Hold): number => endOf(hold);
