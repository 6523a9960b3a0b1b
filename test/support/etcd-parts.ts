import { createAbandonedPlaces } from '../../lib/backends/etcd/locks/abandoned-places.js';
import { Acquisitions } from '../../lib/backends/etcd/locks/acquisitions.js';
import { EntryNames } from '../../lib/backends/etcd/locks/entry-names.js';
import { LockExtension } from '../../lib/backends/etcd/locks/lock-extension.js';
import { OwnEntries } from '../../lib/backends/etcd/locks/own-entries.js';
import { PredecessorWatches } from '../../lib/backends/etcd/locks/predecessor-watches.js';
import { Releases } from '../../lib/backends/etcd/locks/releases.js';
import { Sessions } from '../../lib/backends/etcd/session/sessions.js';
import { RunRecords } from '../../lib/backends/etcd/ticks/run-records.js';
import { TickClaims } from '../../lib/backends/etcd/ticks/tick-claims.js';
import { etcdKeys } from './etcd.js';
import { FaultyEtcdConnection } from './faulty-etcd-connection.js';

/** What a backend is made of, on a connection that can be disturbed. */
export function openEtcdParts(url: string) {
  const connection = new FaultyEtcdConnection(url);
  const keyspace = etcdKeys;
  const watches = new PredecessorWatches(connection, keyspace);
  const names = new EntryNames(keyspace);
  const ownEntries = new OwnEntries(connection, names, (name) => watches.stop(name));
  const sessions = new Sessions({ connection, keyspace, isInUse: (session) => ownEntries.isInUse(session) });
  const extension = new LockExtension({ keyspace, sessions, ownEntries });
  const shared = { connection, keyspace, names, sessions, ownEntries, extension };
  return {
    ...shared,
    acquisitions: new Acquisitions({
      ...shared,
      watches,
      abandonedPlaces: createAbandonedPlaces(connection),
    }),
    releases: new Releases({ ...shared, runRecords: new RunRecords(connection, keyspace) }),
    ticks: new TickClaims(shared),
    close() {
      connection.close();
      sessions.close();
      ownEntries.close();
      watches.close();
    },
  };
}
