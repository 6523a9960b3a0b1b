import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { etcdBackend } from '../../lib/backends/etcd/index.js';
import { zookeeperBackend } from '../../lib/backends/zookeeper/index.js';
import { systemClock } from '../../lib/core/clock.js';
import { replyWithin } from '../../lib/core/requests/store-timeout.js';
import { FaultProxy } from '../faults/injection/fault-proxy.js';
import { startEtcd } from '../services/etcd.js';
import { TICK_TIME_MS, startZookeeper } from '../services/zookeeper.js';
import { bareLocks } from '../support/bare-locks.js';
import { Gate } from '../support/gate.js';
import { type StoreKind, storeKinds } from '../support/store-kinds.js';
import { backendOn } from '../support/stores.js';
import { until } from '../support/until.js';

/** The request that writes is the second one about the key: the first one reads. */
const isSecondAbout = (key: string) => {
  let count = 0;
  return (request: Buffer) => request.includes(key) && (count += 1) === 2;
};

const through = (proxy: FaultProxy, url: string) => {
  const proxied = new URL(url);
  proxied.port = String(proxy.port);
  return proxied.href;
};

async function withStore(
  { start, storeAt }: StoreKind,
  work: (store: {
    ours: ReturnType<typeof backendOn>;
    theirs: ReturnType<typeof backendOn>;
    proxy: FaultProxy;
  }) => Promise<void>,
): Promise<void> {
  const server = await start();
  const proxy = await FaultProxy.to(server.port);
  const ours = backendOn(storeAt(through(proxy, server.url)));
  const theirs = backendOn(storeAt(server.url));
  try {
    await work({ ours, theirs, proxy });
  } finally {
    proxy.heal();
    await ours.close();
    await theirs.close();
    await proxy.close();
    await server.stop();
  }
}

it.concurrent.each(storeKinds.flatMap((kind) => [true, false].map((isPaused) => ({ ...kind, isPaused }))))(
  'on $name, a call that failed takes no effect later (pauses: $isPaused)',
  async ({ isPaused, ...kind }) => {
    await withStore(kind, async ({ ours, theirs, proxy }) => {
      const set = (key: string, paused: boolean, forMs = 30_000) =>
        replyWithin(systemClock, forMs, (timeoutMs) => ours.setPaused(key, paused, timeoutMs));
      // Then all statements are prepared, and their texts are not sent again.
      await set('warm-up', true);
      await set('warm-up', false);
      await theirs.registerTicks('job', 30_000);
      await theirs.setPaused('job', !isPaused, 30_000);
      proxy.setConditions({ holdsFrom: isSecondAbout('job') });
      await expect(set('job', isPaused, 5_000)).rejects.toThrow();
      proxy.heal();
      await ours.close();
      await until(() => Promise.resolve(!proxy.hasConnections));
      expect((await theirs.readTicks('job', 30_000)).isPaused ?? false).toBe(!isPaused);
    });
  },
  60_000,
);

const consensus = [
  {
    name: 'etcd',
    start: () => startEtcd(),
    open: (url: string) => etcdBackend({ hosts: url }),
  },
  {
    name: 'zookeeper',
    start: () => startZookeeper(),
    open: (url: string) =>
      zookeeperBackend({ servers: url, sessionTimeoutMs: 6_000, tickTimeMs: TICK_TIME_MS }),
  },
];

/** Holds the request that pauses and all that follows it, on every connection. */
const holdPause = (proxy: FaultProxy) => {
  const held = new Gate();
  let isHeld = false;
  const holdsFrom = (request: Buffer) => {
    isHeld ||= request.includes('"isPaused":true');
    if (isHeld) held.open();
    return isHeld;
  };
  proxy.setConditions({ holdsFrom });
  return held.passed;
};

describe.each(consensus)('while nothing reaches $name', ({ start, open }) => {
  it.concurrent.each(['goes on', 'is closed'])(
    'a pause is not refused before it can take no effect any more, also if the process %s',
    async (after) => {
      const server = await start();
      const proxy = await FaultProxy.to(server.port);
      const namespace = randomUUID();
      const proxied = server.url.replace(`:${server.port}`, `:${proxy.port}`);
      const backend = open(proxied);
      const [ours, theirs] = [backend, open(server.url)].map((one) => bareLocks({ backend: one, namespace }));
      try {
        await ours!.jobs.setPaused('warm-up', false);
        await theirs!.jobs.registerTicks('job');
        const held = holdPause(proxy);
        const pause = ours!.jobs.setPaused('job', true).then(
          () => 'paused',
          () => 'refused',
        );
        await held;
        if (after === 'is closed') await backend.close();
        expect(await pause).toBe('refused');
        await theirs!.jobs.setPaused('job', false);
        proxy.heal();
        // What was held has arrived before this.
        await ours!.close();
        await until(() => !proxy.hasConnections);
        expect((await theirs!.jobs.readTicks('job')).isPaused ?? false).toBe(false);
      } finally {
        proxy.heal();
        await ours!.close();
        await theirs!.close();
        await proxy.close();
        await server.stop();
      }
    },
    120_000,
  );
});
