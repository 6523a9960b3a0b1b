import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import {
  ROWS_PER_PAGE,
  type RemovableRow,
} from '../../../../../lib/backends/typeorm/statements/scan-statements.js';
import { IdleRows, pauseMsAfter } from '../../../../../lib/backends/typeorm/requests/idle-rows.js';
import { until } from '../../../../support/until.js';

const row = (key: string, isIdle: boolean, isLock = true): RemovableRow => ({ key, isIdle, isLock });

const page = (prefix: string): readonly RemovableRow[] =>
  Array.from({ length: ROWS_PER_PAGE }, (_, index) =>
    row(`${prefix}${String(index).padStart(4, '0')}`, false),
  );

/** Reads these pages one after the other, and after that no rows. The idle rows of page `stuckPage` cannot be removed. */
function idleRowsOf(pages: readonly (readonly RemovableRow[] | Error)[], stuckPage?: number) {
  const reads: string[] = [];
  const idleRows = new IdleRows({
    tokenMemoryMs: 2,
    async removePage(afterKey) {
      const next = pages[reads.push(afterKey) - 1] ?? [];
      if (next instanceof Error) throw next;
      return { rows: next, isRemoved: reads.length !== stuckPage };
    },
  });
  return { idleRows, reads };
}

const someTime = async () => {
  await sleep(20); // Ten intervals: a pass that should not begin would have begun.
  await turn();
};

describe('idle rows', () => {
  it('are looked for after a grant only, and no more once no row of a lock is left', async () => {
    const { idleRows, reads } = idleRowsOf([[row('k', true), row('job', false, false)]]);
    await someTime();
    expect(reads).toEqual([]);
    idleRows.onGranted();
    idleRows.onGranted();
    await until(() => reads.length >= 1);
    await someTime();
    expect(reads).toEqual(['']);
    idleRows.onGranted();
    await until(() => reads.length >= 2);
    idleRows.close();
  });

  it('are looked for again if a key was granted during the pass', async () => {
    let passes = 0;
    const idleRows: IdleRows = new IdleRows({
      tokenMemoryMs: 2,
      removePage() {
        passes += 1;
        if (passes === 1) idleRows.onGranted();
        return Promise.resolve({ rows: [row('k', true)], isRemoved: true });
      },
    });
    idleRows.onGranted();
    await until(() => passes > 1);
    await someTime();
    expect(passes).toBe(2);
    idleRows.close();
  });

  it('are looked for again while a row may become idle', async () => {
    const { idleRows, reads } = idleRowsOf([[row('k', false)], [row('k', false)], [row('k', true)]]);
    idleRows.onGranted();
    await until(() => reads.length >= 3);
    await someTime();
    expect(reads).toEqual(['', '', '']);
    idleRows.close();
  });

  it('are read page by page', async () => {
    const { idleRows, reads } = idleRowsOf([page('a'), page('b'), [row('c', true)]]);
    idleRows.onGranted();
    await until(() => reads.length >= 4);
    expect(reads).toEqual(['', 'a0499', 'b0499', '']);
    idleRows.close();
  });

  it('are looked for again after a failure, from the first row', async () => {
    const { idleRows, reads } = idleRowsOf([page('a'), new Error('read only'), new Error('silent'), []]);
    idleRows.onGranted();
    await until(() => reads.length >= 4);
    await someTime();
    expect(reads).toEqual(['', 'a0499', '', '']);
    idleRows.close();
  });

  it('are removed after a page that cannot be removed, which is tried again later', async () => {
    const { idleRows, reads } = idleRowsOf([page('a'), [row('b', true)], [row('c', true)]], 1);
    idleRows.onGranted();
    await until(() => reads.length >= 3);
    await someTime();
    expect(reads).toEqual(['', 'a0499', '']);
    idleRows.close();
  });

  it('are not looked for after the backend was closed', async () => {
    const { idleRows, reads } = idleRowsOf([page('a'), page('b')]);
    idleRows.onGranted();
    await until(() => reads.length > 0);
    idleRows.close();
    const before = [...reads];
    idleRows.onGranted();
    await someTime();
    expect(reads).toEqual(before);
  });
});

describe('the pause after a page', () => {
  const pageOf = (idleCount: number) => ({
    rows: page('a').map((each, index) => ({ ...each, isIdle: index < idleCount })),
    isRemoved: true,
  });

  it('is the shorter the more of its rows were idle, so that rows are removed as quickly as they are made', () => {
    const pauses = [0, 0.25, 0.5, 0.75, 1].map((share) => pauseMsAfter(pageOf(share * ROWS_PER_PAGE), 100));
    expect(pauses).toEqual([400, 300, 200, 100, 50]);
  });
});
