import type { StoreTime } from '../../../core/requests/store-time.js';
import { exists, setData } from '../wire/operations.js';
import { CODE, unlessCode } from '../wire/zookeeper-errors.js';
import type { OwnLock, OwnLocks } from './own-locks.js';
import { encodeValue } from './stored-lock.js';

/** Extends the lease of held locks. Only one that becomes longer than ever before is written. */
export class LeaseExtension {
  readonly #ownLocks: OwnLocks;

  constructor(ownLocks: OwnLocks) {
    this.#ownLocks = ownLocks;
  }

  /** Returns whether the lock is held for this long now. If not, it is lost. */
  async extend(
    lock: OwnLock & { readonly path: string },
    leaseMs: number,
    time: StoreTime,
  ): Promise<boolean> {
    const { session, path } = lock;
    const value = { ...lock.value, leaseMs: Math.max(lock.value.leaseMs, leaseMs) };
    return this.#ownLocks.whileInFlight(lock, async () => {
      await session.ready(time.leftMs);
      // The heartbeat comes first, so what follows it sees a forced release of before.
      const heartbeat = session.heartbeat();
      const isLonger = value.leaseMs > lock.value.leaseMs;
      const reply = session.send(isLonger ? setData(path, encodeValue(value)) : exists(path));
      const [stat] = await session.await(Promise.all([unlessCode(reply, CODE.noNode), heartbeat]), time);
      if (!stat) {
        this.#ownLocks.remove(lock);
        return false;
      }
      await session.confirm(leaseMs, time.leftMs);
      return this.#ownLocks.extend(lock, leaseMs, value);
    });
  }
}
