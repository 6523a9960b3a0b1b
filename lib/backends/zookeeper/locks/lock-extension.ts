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
    entry: OwnEntry & { readonly path: string },
    leaseMs: number,
    deadline: Deadline,
  ): Promise<boolean> {
    const { session, path } = entry;
    const value = { ...entry.value, leaseMs: Math.max(entry.value.leaseMs, leaseMs) };
    return this.#ownEntries.whileInFlight(entry, async () => {
      await session.ready(deadline.leftMs);
      // The heartbeat comes first, so what follows it sees a forced release of before.
      const heartbeat = session.heartbeat();
      const isLonger = value.leaseMs > entry.value.leaseMs;
      const reply = session.send(isLonger ? setData(path, encodeValue(value)) : exists(path));
      const [stat] = await session.await(Promise.all([unlessCode(reply, CODE.noNode), heartbeat]), deadline);
      if (!stat) {
        this.#ownEntries.remove(entry);
        return false;
      }
      await session.confirm(leaseMs, deadline.leftMs);
      return this.#ownEntries.extend(entry, leaseMs, value);
    });
  }
}
