import { AbandonedPlaces } from '../../../core/requests/abandoned-places.js';
import type { EtcdConnection } from '../rpc/etcd-connection.js';
import { isUnchanged, remove } from '../rpc/operations.js';
import type { StoredLock } from './stored-lock.js';

const DELETE_TIMEOUT_MS = 1_000;

export const createAbandonedPlaces = (connection: EtcdConnection): AbandonedPlaces<StoredLock> =>
  new AbandonedPlaces({
    idOf: ({ name, modRevision }) => `${modRevision} ${name.toString()}`,
    remove: ({ name, modRevision }) => {
      const request = { compare: [isUnchanged(name, modRevision)], success: [remove({ key: name })] };
      return connection.call('KV.Txn', request, DELETE_TIMEOUT_MS);
    },
  });
