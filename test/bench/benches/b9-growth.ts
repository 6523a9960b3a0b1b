import { type Bench, LEASE_MS } from '../bench.js';
import {
  type OneKeyRequest,
  COLUMNS,
  type OneKey,
  type OneKeyReply,
  measureOneKey,
  takesPart,
  workOnOneKey,
} from '../one-key.js';

const [totalMs, overPureWork, medianWaitMs, longestWaitMs, longestOverMedian, commands, holders] = COLUMNS;

export const b9: Bench<OneKey, OneKeyRequest, OneKeyReply> = {
  name: 'B9',
  title: 'What an acquisition costs as processes grow, 4 callers each, 1 ms of work',
  columns: [commands, medianWaitMs, longestWaitMs, longestOverMedian, totalMs, overPureWork, holders],
  better: 'less',
  leaseMs: LEASE_MS,
  timeoutMs: 90_000,
  takesPart,
  cases: ({ contender, profile, isQuick }) =>
    contender.kind === 'peer' && profile === 'default'
      ? []
      : [1, 2, 4, 8, 16].map((processes) => ({
          name: processes === 1 ? '1 process' : `${processes} processes`,
          processes,
          callers: 4,
          waves: isQuick ? 2 : 5,
        })),
  measure: measureOneKey,
  work: workOnOneKey,
};
