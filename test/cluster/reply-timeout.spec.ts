import { Redis } from 'ioredis';
import { Redis as Redis6 } from 'ioredis-6';
import { afterAll, describe, expect, it } from 'vitest';
import { closeWithoutReplies } from '../../lib/backends/redis/reply-timeout.js';
import { type SlowProxy, slowProxy } from '../faults/injection/slow-proxy.js';
import { serviceUrl } from '../support/environment.js';

const TIMEOUT_MS = 200;

/** Unlike `once` of Node, it does not reject at an error. */
const next = (client: Redis, event: string) =>
  new Promise<void>((resolve) => void client.once(event, resolve));

const ends: (() => unknown)[] = [];
afterAll(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

describe.each([
  ['ioredis 5', Redis],
  ['ioredis 6', Redis6 as unknown as typeof Redis],
])('a timeout for replies of %s', (_, Client) => {
  async function connect(): Promise<{ client: Redis; proxy: SlowProxy; closed: () => number }> {
    const proxy = await slowProxy(Number(new URL(serviceUrl('TEST_REDIS_URL')).port));
    const client = new Client(proxy.port, '127.0.0.1', { maxRetriesPerRequest: 0 });
    let closed = 0;
    client.on('close', () => (closed += 1));
    client.on('error', () => undefined);
    closeWithoutReplies(client, TIMEOUT_MS);
    ends.push(
      () => proxy.close(),
      () => client.disconnect(),
    );
    await next(client, 'ready');
    return { client, proxy, closed: () => closed };
  }

  it('replaces a connection on which no reply arrives, and leaves an idle one', async () => {
    const silent = await connect();
    const idle = await connect();
    silent.proxy.silence();
    await expect(silent.client.ping()).rejects.toThrow();
    expect(silent.closed()).toBe(1);
    await next(silent.client, 'ready');
    expect(await silent.client.ping()).toBe('PONG');
    expect(await idle.client.ping()).toBe('PONG');
    expect(idle.closed()).toBe(0);
  });

  it('leaves the connection of a process that was blocked for longer', async () => {
    const { client, closed } = await connect();
    const reply = client.ping();
    const until = performance.now() + 5 * TIMEOUT_MS;
    while (performance.now() < until);
    expect(await reply).toBe('PONG');
    expect(closed()).toBe(0);
  });

  it('replaces a connection that is silent from the beginning', async () => {
    const { client, proxy, closed } = await connect();
    proxy.delayMs = 600_000;
    proxy.cut();
    await next(client, 'connect');
    while (closed() < 2) await next(client, 'close');
    proxy.delayMs = 0;
    await next(client, 'ready');
    expect(await client.ping()).toBe('PONG');
  });
});
