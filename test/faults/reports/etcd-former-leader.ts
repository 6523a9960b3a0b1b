import { setTimeout as sleep } from 'node:timers/promises';
import { ChannelCredentials } from '@grpc/grpc-js';
import { EtcdConnection } from '../../../lib/backends/etcd/rpc/etcd-connection.js';
import { startEtcdCluster } from '../../services/etcd-cluster.js';
import { hostOf } from '../../support/etcd.js';

/**
 * Suspends the leader of three members of etcd for longer than a lease, and lets it go on when another one leads. Leases that a
 * client has kept alive meanwhile must not end. No code of the library keeps them alive, only its connection. Takes the number
 * of rounds.
 *
 * @see https://github.com/etcd-io/etcd/issues/15247
 */
const [rounds = 10] = process.argv.slice(2).map(Number);
const TTL = '3';
const LEASES = 20;
const TIMEOUT_MS = 5_000;
/** Longer than the TTL. */
const SUSPENDED_MS = 4_500;
const AFTER_MS = 600;

/** Keeps leases alive until `signal` has aborted, and collects those that have ended all the same. */
async function keepAlive(
  connection: EtcdConnection,
  leases: readonly string[],
  { ended, signal }: { readonly ended: Set<string>; readonly signal: AbortSignal },
): Promise<void> {
  while (!signal.aborted) {
    await Promise.all(
      leases.map(async (ID) => {
        const reply = await connection
          .exchange('Lease.LeaseKeepAlive', { ID }, TIMEOUT_MS)
          .catch(() => undefined);
        if (reply && Number(reply.TTL) <= 0) ended.add(ID);
      }),
    );
    await sleep(100);
  }
}

const cluster = await startEtcdCluster();
let roundsWithLoss = 0;
for (let round = 1; round <= rounds; round += 1) {
  const leader = await cluster.leader();
  const [other] = cluster.members.filter((member) => member !== leader);
  const hosts = [hostOf(other!.service.url)];
  const credentials = ChannelCredentials.createInsecure();
  const connection = new EtcdConnection({ hosts, credentials, auth: undefined, keyPrefix: '' });
  const granted = Array.from({ length: LEASES }, () =>
    connection.call('Lease.LeaseGrant', { TTL, ID: '0' }, TIMEOUT_MS),
  );
  const leases = (await Promise.all(granted)).map(({ ID }) => ID);
  const over = new AbortController();
  const ended = new Set<string>();
  const keeping = keepAlive(connection, leases, { ended, signal: over.signal });
  await sleep(AFTER_MS);
  await leader.freeze();
  await sleep(SUSPENDED_MS);
  const endedBefore = ended.size;
  leader.thaw();
  await sleep(AFTER_MS);
  over.abort();
  await keeping;
  const endedAfter = ended.size - endedBefore;
  if (endedAfter > 0) roundsWithLoss += 1;
  console.log(
    `round ${round}: of ${LEASES} leases, ${endedBefore} ended before the leader went on, ${endedAfter} after it`,
  );
  connection.close();
}
console.log(
  `${roundsWithLoss} of ${rounds} rounds in which leases ended after it, although they were kept alive`,
);
await cluster.close();
