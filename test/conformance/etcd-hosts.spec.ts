import { once } from 'node:events';
import { createServer } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { etcdBackend } from '../../lib/backends/etcd/index.js';
import { startEtcd } from '../services/etcd.js';
import type { Service } from '../services/service.js';
import { bareLocks } from '../support/bare-locks.js';
import { hostOf } from '../support/etcd.js';

let etcd: Service;
beforeAll(async () => {
  etcd = await startEtcd();
}, 60_000);
afterAll(() => etcd.stop());

it.each([401, 403, 404, 500, 502])(
  'a proxy that answers HTTP %i is left for the next host',
  async (httpStatus) => {
    const proxy = createServer((_, reply) => {
      reply.writeHead(httpStatus, { 'content-type': 'text/plain' });
      reply.end('no');
    }).listen(0, '127.0.0.1');
    await once(proxy, 'listening');
    const { port } = proxy.address() as AddressInfo;
    const hosts = [`127.0.0.1:${port}`, hostOf(etcd.url)];
    const locks = bareLocks({ backend: etcdBackend({ hosts }), namespace: `proxy ${httpStatus}` });
    try {
      const lock = await locks.acquire('key', { waitMs: 20_000 });
      await lock.release();
      const alone = bareLocks({ backend: etcdBackend({ hosts: hosts[0]! }), namespace: 'proxy' });
      await expect(alone.acquire('key', { waitMs: 100 })).rejects.toThrow(
        new RegExp(`127.0.0.1:${port} answers with HTTP status ${httpStatus}, as etcd does not`),
      );
      await alone.close();
    } finally {
      await locks.close();
      proxy.close();
    }
  },
  60_000,
);
