import type { Contender } from '../contender.js';
import { peer } from '../peers.js';
import { poll } from './polling.js';

/** What we use of etcd3. */
interface Etcd3 {
  readonly Etcd3: new (options: { hosts: string }) => {
    lock(key: string): {
      ttl(seconds: number): { acquire(): Promise<{ release(): Promise<void> }> };
    };
    close(): void;
  };
  readonly EtcdLockFailedError: new () => Error;
}

/** Its lock does not wait: it fails while another holder has the key. */
export const all: readonly Contender[] = [
  {
    name: 'etcd3',
    store: 'etcd',
    kind: 'peer',
    async open({ leaseMs, waitMs, stores }) {
      const { Etcd3, EtcdLockFailedError } = peer<Etcd3>('etcd3');
      const client = new Etcd3({ hosts: stores.etcd });
      const tryOnce = async (key: string) => {
        try {
          return await client
            .lock(key)
            .ttl(leaseMs / 1e3)
            .acquire();
        } catch (error) {
          if (error instanceof EtcdLockFailedError) return undefined;
          throw error;
        }
      };
      return {
        acquire: (key) => poll(() => tryOnce(key), waitMs),
        close: async () => client.close(),
      };
    },
  },
];
