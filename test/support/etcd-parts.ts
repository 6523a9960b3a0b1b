import { createAbandonedPlaces } from '../../lib/backends/etcd/locks/abandoned-places.js';
import { Acquisitions } from '../../lib/backends/etcd/locks/acquisitions.js';
import { LeaseExtension } from '../../lib/backends/etcd/locks/lease-extension.js';
import { OwnLocks } from '../../lib/backends/etcd/locks/own-locks.js';
import { PredecessorWatches } from '../../lib/backends/etcd/locks/predecessor-watches.js';
import { Sessions } from '../../lib/backends/etcd/session/sessions.js';
import { TickRequests } from '../../lib/backends/etcd/ticks/tick-requests.js';
import { etcdKeys } from './etcd.js';
import { FaultyEtcdConnection } from './faulty-etcd-connection.js';

/** What a backend is made of, on a connection that can be disturbed. */
export function openEtcdParts(url: string) {
  const connection = new FaultyEtcdConnection(url);
  const keyspace = etcdKeys;
  const watches = new PredecessorWatches(connection, keyspace);
  const ownLocks = new OwnLocks(connection, (name) => watches.stop(name));
  const sessions = new Sessions({ connection, keyspace, isInUse: (session) => ownLocks.isInUse(session) });
  const extension = new LeaseExtension({ keyspace, sessions, ownLocks });
  const shared = { connection, keyspace, sessions, ownLocks, extension };
  return {
    ...shared,
    acquisitions: new Acquisitions({
      ...shared,
      watches,
      abandonedPlaces: createAbandonedPlaces(connection),
    }),
    ticks: new TickRequests(shared),
    close() {
      connection.close();
      sessions.close();
      ownLocks.close();
      watches.close();
    },
  };
}
