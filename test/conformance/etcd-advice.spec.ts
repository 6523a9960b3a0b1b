import { afterEach, expect, it } from 'vitest';
import { etcdBackend } from '../../lib/backends/etcd/index.js';
import { versionAdvice } from '../../lib/backends/etcd/cluster-advice.js';
import { etcdctl, startEtcd } from '../services/etcd.js';
import { serviceUrl } from '../support/environment.js';
import { hostOf } from '../support/etcd.js';

const LIMIT_MS = 10_000;
const url = serviceUrl('TEST_ETCD_URL');

const backend = etcdBackend({ hosts: url });
afterEach(() => backend.close());

it('a learner, which does not vote, is not counted', async () => {
  const server = await startEtcd();
  const other = etcdBackend({ hosts: server.url });
  try {
    await etcdctl(
      `--endpoints=${hostOf(server.url)}`,
      'member',
      'add',
      'new',
      '--learner',
      '--peer-urls=http://127.0.0.1:1',
    );
    expect(await other.advice(LIMIT_MS)).toMatch(/^The etcd cluster has one member\./);
  } finally {
    await other.close();
    await server.stop();
  }
});

it('advice names the number of members, and the fault that the version of the server has', async () => {
  const response = await fetch(`${url}/version`);
  const { etcdserver } = (await response.json()) as { readonly etcdserver: string };
  expect(await backend.advice(LIMIT_MS)).toBe(
    [
      'The etcd cluster has one member. Use three or five, so that locks can be acquired while one of them is down.',
      ...versionAdvice(etcdserver),
    ].join(' '),
  );
});
