import { type Bench, LEASE_MS } from '../bench.js';
import {
  type OneKey,
  type OneKeyReply,
  type OneKeyRequest,
  COLUMNS,
  measureOneKey,
  takesPart,
  workOnOneKey,
} from '../one-key.js';

const PERMITS = 5;

export const b11: Bench<OneKey, OneKeyRequest, OneKeyReply> = {
  name: 'B11',
  title: `${PERMITS} permits of one key`,
  columns: COLUMNS,
  better: 'less',
  leaseMs: LEASE_MS,
  timeoutMs: 90_000,
  takesPart: (contender) => takesPart(contender) && contender.hasPermits === true,
  cases: ({ isQuick }) =>
    [1, 4].flatMap((processes) =>
      [0, 1].map((workMs) => ({
        name: `50 callers in ${processes === 1 ? 'one process' : `each of ${processes} processes`}, ${workMs} ms of work`,
        processes,
        callers: 50,
        waves: isQuick ? 1 : 5,
        permits: PERMITS,
        workMs,
      })),
    ),
  measure: measureOneKey,
  work: workOnOneKey,
};
