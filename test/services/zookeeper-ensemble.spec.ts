import { type AddressInfo, createServer } from 'node:net';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import type { ZookeeperClient } from '../../lib/backends/zookeeper/session/client.js';
import { exists } from '../../lib/backends/zookeeper/wire/operations.js';
import { deadlineIn } from '../../lib/core/requests/deadline.js';
import { onZookeeper, openZookeeperClient, zookeeperKeys } from '../support/zookeeper.js';
import { type ZookeeperEnsemble, standsStill, startZookeeperEnsemble } from './zookeeper-ensemble.js';

const TIMEOUT_MS = 60_000;
const opened: { close(endsLocks: boolean): unknown }[] = [];
let ensemble: ZookeeperEnsemble;

beforeAll(async () => {
  // The leader keeps frozen followers for longer than a spec lasts, so it leads and can commit nothing.
  ensemble = await startZookeeperEnsemble({ config: ['syncLimit=1000'] });
}, TIMEOUT_MS);
afterEach(async () => {
  await ensemble.heal();
  for (const one of opened.splice(0)) await one.close(true);
}, TIMEOUT_MS);
afterAll(() => ensemble.close(), TIMEOUT_MS);

const pids = () => ensemble.members.map(({ service }) => service.pid);

const connectToLeader = async (): Promise<ZookeeperClient> => {
  const client = openZookeeperClient((await ensemble.leader()).service.url);
  opened.push(client);
  await client.ready(deadlineIn(TIMEOUT_MS));
  return client;
};

const freezeFollowers = async () => {
  const leader = await ensemble.leader();
  for (const member of ensemble.members) if (member !== leader) await member.freeze();
};

/** The address of a leader that answers each question about its status with the next transaction, or always with the same. */
const openLeader = async ({ commits }: { readonly commits: boolean }) => {
  let zxid = 1;
  const server = createServer((socket) => {
    if (commits) zxid += 1;
    socket.end(`Outstanding: 5\nZxid: 0x${zxid.toString(16)}\nMode: leader\n`);
    socket.resume();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  opened.push({ close: () => server.close() });
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
};

it(
  'a leader that commits nothing although a request waits is replaced',
  async () => {
    const { session } = await connectToLeader();
    await freezeFollowers();
    const { pid } = (await ensemble.leader()).service;
    session.heartbeat().catch(() => undefined);
    await expect(ensemble.endStandstill()).resolves.toBe(true);
    expect(pids()).not.toContain(pid);
    await ensemble.heal();
    await onZookeeper(ensemble.servers.join(), (client) =>
      client.call(exists(zookeeperKeys.root), TIMEOUT_MS),
    );
  },
  TIMEOUT_MS,
);

it(
  'a leader that nobody wants anything of stays',
  async () => {
    await connectToLeader();
    const before = pids();
    await expect(ensemble.endStandstill()).resolves.toBe(false);
    expect(pids()).toEqual(before);
  },
  TIMEOUT_MS,
);

it.each([true, false])(
  'whether a leader with requests that wait stands still depends on whether it commits: %s',
  async (commits) => {
    await expect(standsStill(await openLeader({ commits }))).resolves.toBe(!commits);
  },
);
