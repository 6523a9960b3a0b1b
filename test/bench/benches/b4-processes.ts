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

/** Five waves are enough for a median; a peer that pauses for long between two tries would be at it for minutes. */
const contendedCase = (waves: number): OneKey => ({
  name: '4 processes, 25 callers each',
  processes: 4,
  callers: 25,
  waves,
});

/** With one caller each, nothing can be handed on inside of a process: every acquisition goes to the store. */
const singleCallerCase = (processes: number, waves: number): OneKey => ({
  name: `${processes} processes, 1 caller each`,
  processes,
  callers: 1,
  waves,
});

export const b4: Bench<OneKey, OneKeyRequest, OneKeyReply> = {
  name: 'B4',
  title: 'Several processes, all for one key, 1 ms of work',
  columns: COLUMNS,
  better: 'less',
  leaseMs: LEASE_MS,
  timeoutMs: 90_000,
  takesPart,
  cases: ({ contender, profile, isQuick }) =>
    contender.kind === 'peer' && profile === 'default'
      ? [contendedCase(1)]
      : [
          contendedCase(isQuick ? 1 : 5),
          ...[4, 8, 16].map((processes) => singleCallerCase(processes, isQuick ? 5 : 25)),
        ],
  measure: measureOneKey,
  work: workOnOneKey,
};
