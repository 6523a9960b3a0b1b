import type { Claim, ReleaseResult } from '../../../../core/backend.js';
import { textFrom } from '../../table/lock-row.js';

/** A row as it is after a release of several. */
export interface ReleasedRow {
  readonly key: Buffer;
  readonly expires_at: string;
  readonly waiting_until: string | null;
}

interface Release {
  readonly claims: readonly Claim[];
  /** How many rows it freed. */
  readonly releasedCount: number;
  /** What it left in each of them as its end, below 0. */
  readonly mark: number;
}

/** Which ones were freed: those that carry the mark of this release, and those that somebody has taken since. */
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
  const inDoubt: ReleaseResult = { kind: 'unknown', cause: new Error('the key has changed hands since') };
  return claims.map(({ key }) => {
    const row = marked.get(key);
    if (!row) return retaken === 0 || retaken === unmarked ? otherwise : inDoubt;
    return row.waiting_until === null ? { kind: 'released' } : { kind: 'released', hasWaiters: true };
  });
}
