import { randomUUID } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import { startRedis } from '../services/redis-server.js';
import { until } from '../support/until.js';
import { endAllWorkers, startWorker } from './start-worker.js';

afterEach(endAllWorkers);

describe('a process that shuts down', () => {
  it('lives until its work was told and all its providers were shut down', async () => {
    const worker = startWorker<object>('drain', {});
    expect(await worker.ended).toBe(0);
    expect(worker.messages).toEqual([{ work: 'told' }, { other: 'shut down' }]);
  }, 60_000);

  it('exits by itself though the store is frozen and has not answered', async () => {
    const server = await startRedis();
    const worker = startWorker<{ isAsking?: true; isClosed?: true }>('close-on-silence', {
      store: { redis: server.url },
      namespace: randomUUID(),
    });
    try {
      await until(() => worker.messages.length > 0);
      server.kill('SIGSTOP');
      worker.process.send('ask and close');
      expect(await worker.ended).toBe(0);
    } finally {
      server.kill('SIGCONT');
      await server.stop();
    }
  }, 60_000);
});
