import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import type { AcquireRequest, LockBackend } from '../../lib/core/backend.js';
import type { TickClaim } from '../../lib/core/tick.js';
import { startPostgres } from '../services/postgres.js';
import type { Service } from '../services/service.js';

const LIMIT_MS = 20_000;

/** As many set it for speed; what is not waited for then stays in memory for as long as the test takes. */
const HASTY = ['-c', 'synchronous_commit=off', '-c', 'wal_writer_delay=10s'];

const request = (key: string, more: Partial<AcquireRequest> = {}): AcquireRequest => ({
  key,
  holder: randomUUID(),
  leaseMs: 300_000,
  instance: 'spec',
  ...more,
});

let first: Service | undefined;
let server: Service;
let backend: LockBackend;

const open = async () => {
  backend = typeormBackend({ dataSource: { type: 'postgres', url: server.url } });
  await backend.check?.(LIMIT_MS);
};

beforeAll(async () => {
  server = first = await startPostgres({ args: HASTY });
  await open();
});

afterAll(async () => {
  await backend.close();
  await server.stop();
  await first?.stop();
});

/** It ends at once and writes nothing more, and is started again. */
async function crash(): Promise<void> {
  server.kill('SIGQUIT');
  await server.exited;
  await backend.close();
  server = await startPostgres({ dataDir: server.dataDir, port: server.port, args: HASTY });
  await open();
}

const tick: TickClaim = {
  tickMs: Date.now(),
  maxEarlyMs: 3_600_000,
  staleAfterMs: 3_600_000,
  maxAttempts: 2,
};

const take = async (...requests: AcquireRequest[]) =>
  (await backend.execute({ acquire: requests }, LIMIT_MS)).acquire;

describe('PostgreSQL whose commits do not wait for the disk keeps after a crash', () => {
  it('a grant', async () => {
    await take(request('one'));
    await crash();
    expect((await take(request('one')))[0]).toMatchObject({ kind: 'taken' });
  });

  it('grants of several keys at once', async () => {
    await take(request('two'), request('three'));
    await crash();
    const answers = await take(request('two'), request('three'));
    expect(answers.map(({ kind }) => kind)).toEqual(['taken', 'taken']);
  });

  it('a renewal', async () => {
    const short = request('short', { leaseMs: 30_000 });
    await take(short);
    await backend.execute({ renew: [{ ...short, leaseMs: 300_000 }] }, LIMIT_MS);
    await crash();
    expect((await backend.inspect('short', LIMIT_MS))?.remainingMs).toBeGreaterThan(100_000);
  });

  it('the claim of a tick', async () => {
    await take(request('claimed', { tick }));
    await crash();
    const [answer] = await take(request('claimed', { tick: { ...tick, maxAttempts: 1 } }));
    expect(answer).toMatchObject({ kind: 'refused', reason: 'claimed' });
  });

  it('the registration of a job', async () => {
    await backend.registerTicks('new', LIMIT_MS);
    await crash();
    const [answer] = await take(request('new', { tick: { ...tick, tickMs: tick.tickMs - 1_000 } }));
    expect(answer).toMatchObject({ kind: 'refused', reason: 'claimed' });
  });

  it('the end of a run', async () => {
    const run = request('ended', { tick });
    await take(run);
    await backend.execute({ release: [{ key: run.key, holder: run.holder, hasEnded: true }] }, LIMIT_MS);
    await crash();
    const [answer] = await take(request('ended', { tick }));
    expect(answer).toMatchObject({ kind: 'refused', reason: 'claimed' });
  });
});
