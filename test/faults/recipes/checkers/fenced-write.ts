import type { CallRecord, History } from '../history.js';
import { groupBy } from '../group-by.js';
import type { RecipeChecker, RoundEvidence } from './checker.js';
import { overlaps } from './overlaps.js';

/** Beyond this, whether some of so many took place says nothing. */
const MAX_UNKNOWN_CALLS = 8;

/**
 * What is gone from the account is what was withdrawn: by each call whose write was confirmed, and with or without each call
 * that died before it could know.
 */
export class FencedWriteChecker implements RecipeChecker {
  readonly isNeeded = () => false;

  check({ history, contents }: RoundEvidence) {
    const withdrawn = -(contents as { balance: number }).balance;
    const { sure, unknown, other } = sorted(history);
    const open = withdrawn - sum(sure);
    const isRight = unknown.length <= MAX_UNKNOWN_CALLS && sumsOf(unknown).includes(open);
    const isLost = !isRight && open < sum(unknown);
    return {
      effects: sure.length,
      lostUpdates: isLost ? 1 : 0,
      doubleEffects: isRight || isLost ? 0 : 1,
      findings: [
        ...overlaps(history.sections),
        ...(isRight ? [] : [sentence(withdrawn, sure, unknown)]),
        ...other.map(({ outcome, worker }) => `a withdrawal of worker ${worker} ended with ${outcome}`),
      ],
    };
  }
}

const WRITE = /await fenced(Update|Set) /;
/** What is written there counts from the commit on. */
const IN_TRANSACTION = />(transaction|withLockedTransaction) /;

function sorted({ calls, results }: History) {
  const writes = results.filter(({ checkpoint }) => WRITE.test(checkpoint));
  const isDirect = writes.every(({ checkpoint }) => !IN_TRANSACTION.test(checkpoint));
  const written = new Set(writes.map(({ worker, call }) => `${worker}:${call}`));
  const kindOf = ({ outcome, worker, number }: CallRecord) => {
    if (outcome === 'ok' || (isDirect && written.has(`${worker}:${number}`))) return 'sure';
    if (outcome === 'LOCK_TIMEOUT') return 'none';
    // A write that is refused has written nothing; whether a commit came before the loss, nobody knows.
    if (outcome === 'LOCK_LOST') return isDirect ? 'none' : 'unknown';
    return outcome === undefined ? 'unknown' : 'other';
  };
  const kinds = groupBy(calls, kindOf);
  return {
    sure: kinds.get('sure') ?? [],
    unknown: kinds.get('unknown') ?? [],
    other: kinds.get('other') ?? [],
  };
}

const sum = (calls: readonly CallRecord[]) =>
  calls.reduce((total, { details }) => total + (details.amount ?? 0), 0);

const sumsOf = (calls: readonly CallRecord[]): number[] =>
  calls.reduce((sums, { details }) => [...sums, ...sums.map((one) => one + (details.amount ?? 0))], [0]);

function sentence(withdrawn: number, sure: readonly CallRecord[], unknown: readonly CallRecord[]): string {
  const unknownAmounts = unknown.map(({ details }) => details.amount).join(', ') || 'none';
  return `${withdrawn} is gone from the account, ${sum(sure)} was withdrawn for sure by ${sure.length} calls, and perhaps ${unknownAmounts}`;
}
