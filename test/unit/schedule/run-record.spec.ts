import { expect, it } from 'vitest';
import { type CronRunRecord, decodeRecords, encodeRecord } from '../../../lib/schedule/run-record.js';

const recordOf = (tickMs: number, more: Partial<CronRunRecord> = {}): CronRunRecord => ({
  ...{ tick: new Date(tickMs), attempt: 1, isManual: false, instance: 'ours', fencingToken: 7n },
  ...{ started: new Date(tickMs), ended: null, outcome: 'running', error: null },
  ...more,
});

it('two runs with the same fencing token are two records, each with its own end', () => {
  // With overlap: 'allow' each tick has a key of its own, and the tokens of two keys may be equal.
  const ended = { ended: new Date(5_000), outcome: 'completed' } as const;
  const entries = [recordOf(1_000), recordOf(2_000), recordOf(1_000, ended)].map((one) => encodeRecord(one));
  const runs = decodeRecords(entries).map(({ record }) => [Number(record.tick), record.outcome]);
  expect(runs).toEqual([
    [2_000, 'running'],
    [1_000, 'completed'],
  ]);
});
