import type { ReleaseRequest } from '../../../core/backend.js';
import type { ReleaseResult } from '../../../core/backend-results.js';
import { type StoreTime, storeTime } from '../../../core/requests/store-time.js';
import type { ZookeeperClient } from '../session/client.js';
import { remove } from '../wire/operations.js';
import { CODE, SessionOverError, codeOf, resultOfError, unlessCode } from '../wire/zookeeper-errors.js';
import type { RunRecords } from '../ticks/run-records.js';
import type { OwnLocks } from './own-locks.js';
import { type QueueReader, readCommitted, readLock } from './queue-reader.js';
import { type LockValue, firstTokenOf, lastTokenOf } from './stored-lock.js';

interface ReleasesParts {
  readonly client: ZookeeperClient;
  readonly ownLocks: OwnLocks;
  readonly queues: QueueReader;
  readonly runRecords: RunRecords;
}

/** Deletes locks and places in queues. Each has a node of its own, so a late release affects no other holder. */
export class Releases {
  readonly #parts: ReleasesParts;

  constructor(parts: ReleasesParts) {
    this.#parts = parts;
  }

  /** Never rejects. */
  async release(request: ReleaseRequest, timeoutMs: number): Promise<ReleaseResult> {
    const { runRecords, ownLocks } = this.#parts;
    const time = storeTime(timeoutMs);
    try {
      if (!request.hasEnded) return await this.#releaseInAnySession(request, time);
      const hasEnded = await runRecords.end(request, timeoutMs);
      ownLocks.remove(request);
      return { kind: hasEnded ? 'released' : 'gone' };
    } catch (cause) {
      return resultOfError(cause);
    }
  }

  /** Releases the key if the token belongs to its current grant. Returns whether it did. */
  async force(key: string, fencingToken: bigint, timeoutMs: number): Promise<boolean> {
    const { client, queues } = this.#parts;
    const time = storeTime(timeoutMs);
    for (;;) {
      const { oldest } = await queues.read(key, time);
      if (!oldest?.value.isHeld) return false;
      if (fencingToken < firstTokenOf(oldest.czxid) || fencingToken > lastTokenOf(oldest)) return false;
      try {
        await client.call(remove(oldest.path, oldest.version), time.leftMs);
      } catch (error) {
        // It was renewed or released meanwhile.
        if (codeOf(error) === CODE.badVersion || codeOf(error) === CODE.noNode) continue;
        throw error;
      }
      await this.#recordRelease(oldest, oldest.value, time);
      return true;
    }
  }

  async #releaseInAnySession(request: ReleaseRequest, time: StoreTime): Promise<ReleaseResult> {
    for (;;) {
      try {
        return await this.#release(request, time);
      } catch (error) {
        // Its own session is over, with the lock, or the one in which an entry of before was looked for.
        if (!(error instanceof SessionOverError)) throw error;
      }
    }
  }

  async #release(request: ReleaseRequest, time: StoreTime): Promise<ReleaseResult> {
    const { client, ownLocks } = this.#parts;
    const own = ownLocks.find(request);
    if (own?.path === undefined || own.session !== client.session) return this.#releaseFound(request, time);
    const { session, path, isHeld, value } = own;
    await session.ready(time.leftMs);
    const removed = session.send(remove(path)).then(() => true);
    const wasThere = await session.await(unlessCode(removed, CODE.noNode), time);
    ownLocks.remove(request);
    if (!isHeld || !wasThere) return { kind: 'gone' };
    await this.#recordRelease(request, value, time);
    return { kind: 'released' };
  }

  /**
   * Releases an entry whose node is not known: the request that created it has no reply, or the backend was closed meanwhile.
   */
  async #releaseFound(request: ReleaseRequest, time: StoreTime): Promise<ReleaseResult> {
    const { client, ownLocks } = this.#parts;
    const bucket = client.keyspace.bucketOf(request.key);
    const session = await client.ready(time);
    const entries = await readCommitted(session, { bucket, key: request.key }, time);
    const own = entries.filter(({ holder }) => holder === request.holder);
    const found = await session.await(Promise.all(own.map((entry) => readLock(session, entry))), time);
    let wasHeld = false;
    for (const lock of found) {
      if (!lock) continue;
      await session.await(unlessCode(session.send(remove(lock.path)), CODE.noNode), time);
      if (!lock.value.isHeld || lock.path !== entries[0]?.path) continue;
      wasHeld = true;
      await this.#recordRelease(request, lock.value, time);
    }
    ownLocks.remove(request);
    return { kind: wasHeld ? 'released' : 'gone' };
  }

  /** The lock is released already, so a failure here must not hide that: the run then counts as alive for its lease. */
  async #recordRelease(
    acquisition: { readonly key: string; readonly holder: string },
    value: LockValue,
    time: StoreTime,
  ): Promise<void> {
    if (!value.isRun) return;
    await this.#parts.runRecords.onReleased(acquisition, time.leftMs).catch(() => undefined);
  }
}
