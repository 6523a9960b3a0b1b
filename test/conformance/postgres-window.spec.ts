import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { DataSource } from 'typeorm';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import type { AcquireRequest } from '../../lib/core/backend.js';
import { dataSourceOptions, postgresStore } from '../support/stores.js';
import { until } from '../support/until.js';

const LIMIT_MS = 30_000;
const HOUR_MS = 3_600_000;

const tickAheadBy = (aheadMs: number) => ({
  ...{ tickMs: Date.now() + aheadMs, maxEarlyMs: 1_000, staleAfterMs: 1_000 },
});

it.each([
  ['of another holder', false],
  ['of its own holder', true],
])('a tick is not granted too early if the lease %s ends while its row is waited for', async (_, isOwn) => {
  const options = dataSourceOptions(postgresStore());
  const name = randomUUID();
  const stranger = await new DataSource(options).initialize();
  const runner = stranger.createQueryRunner();
  const backend = typeormBackend({
    dataSource: { ...options, extra: { application_name: name } },
  });
  try {
    const held: AcquireRequest = { key: name, holder: 'first', leaseMs: HOUR_MS, instance: 'spec' };
    await backend.execute({ acquire: [held] }, LIMIT_MS);
    await runner.startTransaction();
    await runner.query('UPDATE distributed_lock SET holder = NULL, expires_at = 0 WHERE key = $1', [name]);
    const early: AcquireRequest = {
      ...{ ...held, holder: isOwn ? 'first' : 'second', retryWithinMs: HOUR_MS, tick: tickAheadBy(HOUR_MS) },
    };
    let isAnswered = false;
    const asked = backend.execute({ acquire: [early] }, LIMIT_MS).finally(() => (isAnswered = true));
    const waiting = `SELECT FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'`;
    await until(async () => isAnswered || (await stranger.query<unknown[]>(waiting, [name])).length > 0);
    await runner.commitTransaction();
    expect((await asked).acquire[0]!.kind).toBe('refused');
    expect(await backend.inspect(name, LIMIT_MS)).toBeNull();
  } finally {
    await runner.release();
    await stranger.destroy();
    await backend.close();
  }
});
