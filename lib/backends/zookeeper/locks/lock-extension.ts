import type { Deadline } from '../../../core/requests/deadline.js';
import { exists, setData } from '../wire/operations.js';
import { CODE, unlessCode } from '../wire/zookeeper-errors.js';
import type { OwnEntry, OwnEntries } from './own-entries.js';
import { encodeValue } from './stored-lock.js';

/** Extends the lease of held locks. Only one that becomes longer than ever before is written. */
export class LockExtension {
  readonly #ownEntries: OwnEntries;

  constructor(ownEntries: OwnEntries) {
    this.#ownEntries = ownEntries;
  }

  /** Returns whether the lock is held for this long now. If not, it is lost. */
  async extend(
    lock: OwnEntry & { readonly path: string },
    leaseMs: number,
    deadline: Deadline,
  ): Promise<boolean> {
    const { session, path } = lock;
    const value = { ...lock.value, leaseMs: Math.max(lock.value.leaseMs, leaseMs) };
    return this.#ownEntries.whileInFlight(lock, async () => {
      await session.ready(deadline.leftMs);
      // The heartbeat comes first, so what follows it sees a forced release of before.
      const heartbeat = session.heartbeat();
      const isLonger = value.leaseMs > lock.value.leaseMs;
      const reply = session.send(isLonger ? setData(path, encodeValue(value)) : exists(path));
      const [stat] = await session.await(Promise.all([unlessCode(reply, CODE.noNode), heartbeat]), deadline);
      if (!stat) {
        this.#ownEntries.remove(lock);
        return false;
      }
      await session.confirm(leaseMs, deadline.leftMs);
      return this.#ownEntries.extend(lock, leaseMs, value);
    });
  }
}
