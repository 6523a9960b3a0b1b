import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { zookeeperBackend } from '../../lib/backends/zookeeper/index.js';
import { entriesOf } from '../../lib/backends/zookeeper/keyspace.js';
import { settle } from '../../lib/backends/zookeeper/session/settle.js';
import { create, exists, getChildren } from '../../lib/backends/zookeeper/wire/operations.js';
import { deadlineIn } from '../../lib/core/requests/deadline.js';
import { StoreTimeoutError } from '../../lib/core/requests/store-timeout.js';
import { createAcquireRequest, createAcquisitionId } from '../../lib/testing/laws/law.js';
import type { RestartableServer } from '../faults/injection/restartable-server.js';
import { type ZookeeperEnsemble, startZookeeperEnsemble } from '../services/zookeeper-ensemble.js';
import { TICK_TIME_MS } from '../services/zookeeper.js';
import { until } from '../support/until.js';
import { SESSION_TIMEOUT_MS, onZookeeper, openZookeeperClient, zookeeperKeys } from '../support/zookeeper.js';

const TIMEOUT_MS = 60_000;
/** A server that was silent for so long is left. */
const SHORT_MS = 400;
const LEASE_MS = 60_000;
const opened: { close(): unknown }[] = [];
let ensemble: ZookeeperEnsemble;
let leader: RestartableServer;
let follower: RestartableServer;
let others: RestartableServer[];

beforeAll(async () => {
  // The leader and one follower are no majority of four. The leader keeps the frozen ones for longer than a spec lasts.
  ensemble = await startZookeeperEnsemble({ size: 4, config: ['syncLimit=1000'] });
}, TIMEOUT_MS);
afterEach(async () => {
  await ensemble.heal();
  for (const one of opened.splice(0)) await one.close();
}, TIMEOUT_MS);
afterAll(() => ensemble.close(), TIMEOUT_MS);

/** The servers of a client that is connected to the leader, and goes on with the follower. */
const chooseServers = async () => {
  leader = await ensemble.leader();
  [follower, ...others] = ensemble.members.filter((one) => one !== leader) as [
    ...[RestartableServer, ...RestartableServer[]],
  ];
  return [leader.service.url, follower.service.url];
};

/** From then on what the leader proposes is not committed. */
const withholdMajority = () => Promise.all(others.map((one) => one.freeze()));
const restoreMajority = () => others.forEach((one) => one.thaw());

const readHolders = (key: string) =>
  onZookeeper(ensemble.servers.join(), async (client) => {
    const bucket = zookeeperKeys.bucketOf(key);
    const { names } = await client.read(getChildren(bucket), TIMEOUT_MS);
    return entriesOf(bucket, names, key).map(({ holder }) => holder);
  });

it(
  'a release over another server does not overlook a lock that is committed only later',
  async () => {
    const servers = await chooseServers();
    const backend = zookeeperBackend({ servers, sessionTimeoutMs: 90_000, tickTimeMs: TICK_TIME_MS });
    opened.push(backend);
    const [first, late] = [createAcquisitionId('key'), createAcquisitionId('key')];
    const acquire = async (acquisition: typeof first, timeoutMs: number) =>
      (
        await backend.execute(
          { acquire: [createAcquireRequest(acquisition, { leaseMs: LEASE_MS })] },
          timeoutMs,
        )
      ).acquire[0]?.kind;
    const release = async (acquisition: typeof first, timeoutMs: number) =>
      (await backend.execute({ release: [acquisition] }, timeoutMs)).release[0]?.kind;
    expect(await acquire(first, TIMEOUT_MS)).toBe('granted');
    expect(await release(first, TIMEOUT_MS)).toBe('released');
    await withholdMajority();
    const request = createAcquireRequest(late, { leaseMs: LEASE_MS, retryWithinMs: LEASE_MS });
    const [result] = (await backend.execute({ acquire: [request] }, SHORT_MS)).acquire;
    expect(result?.kind).toBe('unknown');
    // The follower answers reads, but does not know yet what becomes of the lock.
    expect(await release(late, 5 * SHORT_MS)).toBe('unknown');
    restoreMajority();
    await until(async () => (await release(late, TIMEOUT_MS)) !== 'unknown');
    expect(await readHolders('key')).toEqual([]);
  },
  TIMEOUT_MS,
);

it(
  'a request without a reply is settled only once it is committed or never will be',
  async () => {
    const client = openZookeeperClient((await chooseServers()).join(), SESSION_TIMEOUT_MS);
    opened.push({ close: () => client.close(true) });
    const session = await client.ready(deadlineIn(TIMEOUT_MS));
    await client.createContainer(session, zookeeperKeys.bucketOf('settled'), deadlineIn(TIMEOUT_MS));
    await withholdMajority();
    const late = session.send(
      create({
        ...{
          path: zookeeperKeys.lock('settled', 'late'),
          data: Buffer.from('{}'),
          kind: 'ephemeralSequential',
        },
        acl: client.acl,
      }),
    );
    await expect(session.await(late, deadlineIn(SHORT_MS))).rejects.toThrow(StoreTimeoutError);
    await expect(late).rejects.toThrow(/lost before a reply/);
    let isSettled = false;
    const settled = settle(session, late).then(() => (isSettled = true));
    await session.ready(TIMEOUT_MS);
    await session.await(session.send(exists(zookeeperKeys.root)), deadlineIn(TIMEOUT_MS));
    expect(isSettled).toBe(false);
    restoreMajority();
    await settled;
    const { names } = await session.await(
      ...([session.send(getChildren(zookeeperKeys.bucketOf('settled'))), deadlineIn(TIMEOUT_MS)] as const),
    );
    expect(names).toHaveLength(1);
  },
  TIMEOUT_MS,
);
