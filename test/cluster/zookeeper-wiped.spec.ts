import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { zookeeperBackend } from '../../lib/backends/zookeeper/index.js';
import { createAcquireRequest, createAcquisitionId } from '../../lib/testing/laws/law.js';
import { RestartableServer } from '../faults/injection/restartable-server.js';
import { TICK_TIME_MS, startZookeeper } from '../services/zookeeper.js';
import { until } from '../support/until.js';

const TIMEOUT_MS = 1_000;
const LEASE_MS = 1_500;

it('a process goes on after ZooKeeper has lost all its data, and locks of before are lost', async () => {
  const server = await RestartableServer.start((options) => startZookeeper(options), {});
  const options = { servers: server.service.url, sessionTimeoutMs: 2_000, tickTimeMs: TICK_TIME_MS };
  const backend = zookeeperBackend(options);
  try {
    const acquire = async (acquisition = createAcquisitionId('key')) => {
      const request = createAcquireRequest(acquisition, { leaseMs: LEASE_MS });
      return (await backend.execute({ acquire: [request] }, TIMEOUT_MS)).acquire[0]?.kind;
    };
    const held = createAcquisitionId('held');
    await until(async () => (await acquire(held)) === 'granted');
    // The server that has lost its data knows of fewer transactions than the process has seen.
    for (let count = 0; count < 10; count += 1) await acquire();
    await server.kill();
    await rm(join(server.service.dataDir, 'data', 'version-2'), { recursive: true });
    await server.startAgain();
    await until(async () => (await acquire()) === 'granted');
    const { renew } = await backend.execute({ renew: [{ ...held, leaseMs: LEASE_MS }] }, TIMEOUT_MS);
    expect(renew[0]?.kind).toBe('lost');
  } finally {
    await backend.close();
    await server.close();
  }
}, 120_000);
