import type { ReleaseRequest } from '../../../core/backend.js';
import type { ReleaseResult } from '../../../core/backend-results.js';
import { type Deadline, deadlineIn } from '../../../core/requests/deadline.js';
import type { ZookeeperClient } from '../session/client.js';
import { remove } from '../wire/operations.js';
import { CODE, SessionOverError, codeOf, resultOfError, unlessCode } from '../wire/zookeeper-errors.js';
import type { RunRecords } from '../ticks/run-records.js';
import type { OwnEntries } from './own-entries.js';
import { type QueueReader, readCommitted, readLock } from './queue-reader.js';
import { type LockValue, firstTokenOf, lastTokenOf } from './stored-lock.js';

interface ReleasesParts {
  readonly client: ZookeeperClient;
  readonly ownEntries: OwnEntries;
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
    const { runRecords, ownEntries } = this.#parts;
    const deadline = deadlineIn(timeoutMs);
    try {
      if (!request.hasEnded) return await this.#releaseInAnySession(request, deadline);
      const hasEnded = await runRecords.end(request, timeoutMs);
      ownEntries.remove(request);
      return { kind: hasEnded ? 'released' : 'gone' };
    } catch (cause) {
      return resultOfError(cause);
    }
  }

  /** Releases the key if the token belongs to its current grant. Returns whether it did. */
  async force(key: string, fencingToken: bigint, timeoutMs: number): Promise<boolean> {
    const { client, queues } = this.#parts;
    const deadline = deadlineIn(timeoutMs);
    for (;;) {
      const { oldest } = await queues.read(key, deadline);
      if (!oldest?.value.isHeld) return false;
      if (fencingToken < firstTokenOf(oldest.czxid) || fencingToken > lastTokenOf(oldest)) return false;
      try {
        await client.call(remove(oldest.path, oldest.version), deadline.leftMs);
      } catch (error) {
        // It was renewed or released meanwhile.
        if (codeOf(error) === CODE.badVersion || codeOf(error) === CODE.noNode) continue;
        throw error;
      }
      await this.#recordRelease(oldest, oldest.value, deadline);
      return true;
    }
  }

  async #releaseInAnySession(request: ReleaseRequest, deadline: Deadline): Promise<ReleaseResult> {
    for (;;) {
      try {
        return await this.#release(request, deadline);
      } catch (error) {
        // Its own session is over, with the lock, or the one in which an entry of before was looked for.
        if (!(error instanceof SessionOverError)) throw error;
      }
    }
  }

  async #release(request: ReleaseRequest, deadline: Deadline): Promise<ReleaseResult> {
    const { client, ownEntries } = this.#parts;
    const own = ownEntries.find(request);
    if (own?.path === undefined || own.session !== client.session)
      return this.#releaseFound(request, deadline);
    const { session, path, isHeld, value } = own;
    await session.ready(deadline.leftMs);
    const removed = session.send(remove(path)).then(() => true);
    const wasThere = await session.await(unlessCode(removed, CODE.noNode), deadline);
    ownEntries.remove(request);
    if (!isHeld || !wasThere) return { kind: 'gone' };
    await this.#recordRelease(request, value, deadline);
    return { kind: 'released' };
  }

  /**
   * Releases an entry whose node is not known: the request that created it has no reply, or the backend was closed meanwhile.
   */
  async #releaseFound(request: ReleaseRequest, deadline: Deadline): Promise<ReleaseResult> {
    const { client, ownEntries } = this.#parts;
    const bucket = client.keyspace.bucketOf(request.key);
    const session = await client.ready(deadline);
    const entries = await readCommitted(session, { bucket, key: request.key }, deadline);
    const own = entries.filter(({ holder }) => holder === request.holder);
    const found = await session.await(Promise.all(own.map((entry) => readLock(session, entry))), deadline);
    let wasHeld = false;
    for (const lock of found) {
      if (!lock) continue;
      await session.await(unlessCode(session.send(remove(lock.path)), CODE.noNode), deadline);
      if (!lock.value.isHeld || lock.path !== entries[0]?.path) continue;
      wasHeld = true;
      await this.#recordRelease(request, lock.value, deadline);
    }
    ownEntries.remove(request);
    return { kind: wasHeld ? 'released' : 'gone' };
  }

  /** The lock is released already, so a failure here must not hide that: the run then counts as alive for its lease. */
  async #recordRelease(
    acquisition: { readonly key: string; readonly holder: string },
    value: LockValue,
    deadline: Deadline,
  ): Promise<void> {
    if (!value.isRun) return;
    await this.#parts.runRecords.onReleased(acquisition, deadline.leftMs).catch(() => undefined);
  }
}
