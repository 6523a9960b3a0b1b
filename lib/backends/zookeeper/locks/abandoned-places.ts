import { AbandonedPlaces } from '../../../core/requests/abandoned-places.js';
import type { ZookeeperClient } from '../session/client.js';
import { remove } from '../wire/operations.js';
import type { StoredLock } from './stored-lock.js';

const DELETE_TIMEOUT_MS = 1_000;

export const createAbandonedPlaces = (client: ZookeeperClient): AbandonedPlaces<StoredLock> =>
  new AbandonedPlaces({
    idOf: ({ path, version }) => `${version} ${path}`,
    remove: ({ path, version }) => client.call(remove(path, version), DELETE_TIMEOUT_MS),
  });
