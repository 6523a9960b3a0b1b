import { describe, expect, it } from 'vitest';
import {
  recordFrom,
  snapshotFrom,
  takenResultFrom,
  tickStateFrom,
} from '../../../../../lib/backends/typeorm/table/lock-row.js';
import { judgeTick } from '../../../../../lib/core/tick.js';

const NOW_MS = 1_700_000_000_000;
const columns = {
  store_time: `${NOW_MS * 1_000}`,
  holder: 'theirs',
  instance: 'node-1',
  version: '9007199254740993',
  expires_at: `${(NOW_MS + 500) * 1_000}`,
  acquired_at: `${(NOW_MS - 100) * 1_000 + 7}`,
  tick: `${NOW_MS}`,
  attempt: '0',
};
const request = { key: 'k', holder: 'ours', leaseMs: 1_000, instance: 'node-2' };
const tickAt = (tickMs: number) => ({ tickMs, maxEarlyMs: 10, staleAfterMs: 50 });
const free = snapshotFrom({ ...columns, expires_at: '0', holder: null, tick: null });

describe('a row of the table', () => {
  it('keeps a fencing token that no number could hold', () => {
    expect(snapshotFrom(columns).row?.fencingToken).toBe(9007199254740993n);
  });

  it('reads bytes as text', () => {
    expect(snapshotFrom({ ...columns, holder: Buffer.from('hölder') }).row?.holder).toBe('hölder');
  });

  it('shows who holds the key, and no holder after the lease', () => {
    expect(recordFrom(snapshotFrom(columns))).toMatchObject({
      holder: 'theirs',
      sinceMs: NOW_MS - 100,
      remainingMs: 500,
    });
    expect(recordFrom(snapshotFrom({ ...columns, expires_at: columns.store_time }))).toBeNull();
  });

  it('refuses a tick before it reports the key as taken', () => {
    const snapshot = snapshotFrom(columns);
    expect(judgeTick(tickAt(NOW_MS), tickStateFrom(snapshot))).toMatchObject({
      kind: 'refused',
      reason: 'claimed',
    });
    expect(judgeTick(tickAt(NOW_MS + 11), tickStateFrom(snapshot))).toMatchObject({
      reason: 'early',
      aheadMs: 11,
    });
    expect(judgeTick(tickAt(NOW_MS + 1), tickStateFrom(snapshot))).toEqual({
      kind: 'taken',
      remainingMs: 500,
    });
    expect(judgeTick(tickAt(NOW_MS - 51), tickStateFrom(free))).toMatchObject({
      reason: 'stale',
      aheadMs: -51,
    });
    expect(judgeTick(tickAt(NOW_MS), tickStateFrom(free))).toEqual({ kind: 'grant', attempt: 1 });
  });

  it('reports the key as taken, unless it is free or held by the requester', () => {
    expect(takenResultFrom(request, snapshotFrom(columns))).toEqual({ kind: 'taken', remainingMs: 500 });
    expect(takenResultFrom(request, free)).toBeUndefined();
    expect(takenResultFrom({ ...request, holder: 'theirs' }, snapshotFrom(columns))).toBeUndefined();
  });
});
