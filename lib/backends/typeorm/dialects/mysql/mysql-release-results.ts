import type { Claim, ReleaseResult } from '../../../../core/backend.js';
import { textFrom } from '../../table/lock-row.js';

/** A row as it is read after several claims were released. */
export interface ReleasedRow {
  readonly key: Buffer;
  readonly expires_at: string;
  readonly waiting_until: string | null;
}

interface Release {
  readonly claims: readonly Claim[];
  /** How many rows the statement has released. */
  readonly releasedCount: number;
  /** A random number. The statement has set `expires_at` of each released row to its negative. */
  readonly mark: number;
}

/**
 * Which claims were released: those whose row has the mark of this release, and those whose key was acquired again since.
 * If the count does not show which claims are the latter, their result is `unknown`.
 */
export function releaseResultsFrom(
  { claims, releasedCount, mark }: Release,
  rows: readonly ReleasedRow[],
): ReleaseResult[] {
  const marked = new Map(
    rows.filter((row) => Number(row.expires_at) === -mark).map((row) => [textFrom(row.key), row]),
  );
  const retaken = releasedCount - marked.size;
  const unmarked = claims.length - marked.size;
  const otherwise: ReleaseResult = retaken === 0 ? { kind: 'gone' } : { kind: 'released' };
  const inDoubt: ReleaseResult = {
    kind: 'unknown',
    cause: new Error('the key has been acquired again since'),
  };
  return claims.map(({ key }) => {
    const row = marked.get(key);
    if (!row) return retaken === 0 || retaken === unmarked ? otherwise : inDoubt;
    return row.waiting_until === null ? { kind: 'released' } : { kind: 'released', hasWaiters: true };
  });
}
