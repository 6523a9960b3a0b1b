import { randomBytes } from 'node:crypto';
import { type Moment, clocksAgree, momentOf, systemClock } from '../../../core/clock.js';
import type { Keyspace } from '../keyspace.js';
import type { EtcdConnection } from '../rpc/etcd-connection.js';
import { EtcdError, hasNoEffect, isDecided } from '../rpc/etcd-errors.js';
import type { KeyValue, RequestOp, TxnResponse } from '../rpc/messages.js';
import { isUnchanged, keysOf, put, read } from '../rpc/operations.js';
import { deadlineIn } from '../../../core/requests/deadline.js';
import { SharedCall } from '../../../core/requests/shared-call.js';

interface SessionParts {
  readonly connection: EtcdConnection;
  readonly keyspace: Keyspace;
  readonly ttlSeconds: number;
}

const MAX_CONFIRMATIONS = 3;

/** The session's lease has ended in etcd, with all its locks. */
export class SessionOverError extends EtcdError {
  constructor() {
    super('the lease of this process has ended in etcd', { hasNoEffect: true });
  }
}

/**
 * One lease of this process in etcd, which all its locks of about the same length share, and the session key attached to it.
 *
 * Each grant is a transaction that holds only if the session key is unchanged. So no lock is granted once the lease has
 * ended. And a transaction with an unknown outcome can be fenced off: after a change of the session key it never takes
 * effect.
 */
export class Session {
  readonly #parts: SessionParts;
  #key: Buffer = NO_VALUE;
  #leaseId = '0';
  #keyRevision = '0';
  #isOver = false;
  /** The number of transactions with an unknown outcome. They may still take effect, unless they were fenced off. */
  #doubts = 0;
  #fencedDoubts = 0;
  /** The lease lasts for its length from here: the moment before the newest confirmed request was sent. */
  #confirmedAt: Moment | undefined;
  lastUsedAtMs = systemClock.monotonicMs();
  readonly #opening = new SharedCall((timeoutMs) => this.#open(timeoutMs));
  readonly #fencing = new SharedCall((timeoutMs) => this.#fence(timeoutMs));
  readonly #confirming = new SharedCall((timeoutMs) => this.#confirm(timeoutMs));

  constructor(parts: SessionParts) {
    this.#parts = parts;
  }

  get leaseId(): string {
    return this.#leaseId;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  get ttlMs(): number {
    return this.#parts.ttlSeconds * 1_000;
  }

  /**
   * Resolves when the lease is known to last for at least `leaseMs` from now.
   *
   * And no transaction of before can take effect any more: a caller of this may write.
   *
   * @throws SessionOverError if the lease has ended
   */
  async prepare(leaseMs: number, timeoutMs: number): Promise<void> {
    const deadline = deadlineIn(timeoutMs);
    try {
      await this.fenceOff(deadline.leftMs);
      await this.confirm(leaseMs, deadline.leftMs);
    } catch (cause) {
      // The caller has not sent anything yet, and this cannot change what it sends later.
      if (cause instanceof EtcdError && isDecided(cause) && !hasNoEffect(cause))
        throw new EtcdError(cause.message, { hasNoEffect: true });
      throw cause;
    }
  }

  /**
   * Resolves when the lease is known to last for at least `leaseMs` from now. Writes nothing, so it is possible although etcd
   * has used up its space.
   *
   * @throws SessionOverError if the lease has ended
   */
  async confirm(leaseMs: number, timeoutMs: number): Promise<void> {
    this.lastUsedAtMs = systemClock.monotonicMs();
    const deadline = deadlineIn(timeoutMs);
    if (!this.#isOver && !this.#confirmedAt) await this.#opening.run(deadline.leftMs);
    // A renewal that was in progress may have been sent too long ago.
    for (let tries = 0; !this.#isOver && !this.#lasts(leaseMs) && tries < MAX_CONFIRMATIONS; tries += 1)
      await this.#confirming.run(deadline.leftMs);
    if (this.#isOver) throw new SessionOverError();
    if (!this.#lasts(leaseMs))
      throw new EtcdError('etcd did not confirm the lease in time', { hasNoEffect: true });
  }

  /** Keeps the lease alive. Does nothing if it was never opened, or is over. */
  async keepAlive(timeoutMs: number): Promise<void> {
    if (!this.#confirmedAt || this.#isOver) return;
    await this.#confirming.run(timeoutMs);
  }

  /**
   * Runs operations in one transaction, if the session lasts.
   *
   * @throws SessionOverError if it has ended; then nothing was done
   */
  async transact(operations: readonly RequestOp[], timeoutMs: number): Promise<TxnResponse> {
    const { connection } = this.#parts;
    const endsAtMs = systemClock.monotonicMs() + timeoutMs;
    for (let leftMs = timeoutMs; ; leftMs = endsAtMs - systemClock.monotonicMs()) {
      // Each try needs another fence, so there are few.
      if (leftMs < 0) throw new EtcdError('others fenced this transaction off', { hasNoEffect: true });
      const request = {
        compare: [isUnchanged(this.#key, this.#keyRevision)],
        success: operations,
        failure: [read({ key: this.#key })],
      };
      let response: TxnResponse;
      try {
        response = await connection.call('KV.Txn', request, leftMs);
      } catch (cause) {
        if (!isDecided(cause)) this.#doubts += 1;
        throw cause;
      }
      if (response.succeeded) return response;
      // A fence has changed the key meanwhile.
      this.#adopt(keysOf(response.responses[0])[0]);
      if (this.#isOver) throw new SessionOverError();
    }
  }

  /** Resolves when no transaction of before can take effect any more. */
  async fenceOff(timeoutMs: number): Promise<void> {
    const deadline = deadlineIn(timeoutMs);
    const doubts = this.#doubts;
    // A fence that was in progress may be older than a doubt.
    while (!this.#isOver && this.#fencedDoubts < doubts) await this.#fencing.run(deadline.leftMs);
  }

  /** Whether transactions with an unknown outcome may still take effect. */
  get hasOpenOutcomes(): boolean {
    return this.#fencedDoubts < this.#doubts && !this.#isOver;
  }

  #lasts(leaseMs: number): boolean {
    const now = momentOf(systemClock);
    const confirmedAt = this.#confirmedAt;
    // After a sleep of the machine, the monotonic clock says nothing about the lease.
    if (!confirmedAt || !clocksAgree(confirmedAt, now)) return false;
    return confirmedAt.monotonicMs + this.ttlMs >= now.monotonicMs + leaseMs;
  }

  async #open(timeoutMs: number): Promise<void> {
    const { connection, keyspace, ttlSeconds } = this.#parts;
    const deadline = deadlineIn(timeoutMs);
    const sentAt = momentOf(systemClock);
    const grant = { TTL: String(ttlSeconds), ID: '0' };
    const { ID } = await connection.call('Lease.LeaseGrant', grant, deadline.leftMs);
    // One of each attempt: that of a failed one may be written late, and ends with a lease that nobody keeps alive.
    const key = keyspace.session(randomBytes(12).toString('base64url'));
    const request = { compare: [], success: [put(key, NO_VALUE, ID)] };
    const { header } = await connection.call('KV.Txn', request, deadline.leftMs);
    this.#key = key;
    this.#leaseId = ID;
    this.#keyRevision = header.revision;
    this.#confirmedAt = sentAt;
  }

  async #fence(timeoutMs: number): Promise<void> {
    const { connection } = this.#parts;
    // Those that arise from now on may have adopted what this fence writes.
    const doubts = this.#doubts;
    const request = {
      compare: [isUnchanged(this.#key, this.#keyRevision)],
      success: [put(this.#key, NO_VALUE, this.#leaseId)],
      failure: [read({ key: this.#key })],
    };
    const { header, succeeded, responses } = await connection.call('KV.Txn', request, timeoutMs);
    if (succeeded) this.#adoptRevision(header.revision);
    else this.#adopt(keysOf(responses[0])[0]);
    this.#fencedDoubts = doubts;
  }

  /**
   * Renews the lease, then reads the session key. A frozen leader that wakes up may confirm a lease that its successor has
   * ended. The read needs a majority, and shows the change of the leader.
   *
   * @see https://github.com/etcd-io/etcd/issues/15247
   */
  async #confirm(timeoutMs: number): Promise<void> {
    const { connection } = this.#parts;
    const deadline = deadlineIn(timeoutMs);
    const sentAt = momentOf(systemClock);
    const reply = await connection.exchange('Lease.LeaseKeepAlive', { ID: this.#leaseId }, deadline.leftMs);
    if (Number(reply.TTL) <= 0) {
      this.#isOver = true;
      return;
    }
    const { header, kvs } = await connection.call('KV.Range', { key: this.#key }, deadline.leftMs);
    this.#adopt(kvs[0]);
    if (header.raft_term !== reply.header.raft_term)
      throw new EtcdError('the etcd cluster has just changed its leader', { hasNoEffect: true });
    this.#confirmedAt = sentAt;
  }

  /** Takes over the revision of the session key. Without a key the lease has ended. */
  #adopt(session: KeyValue | undefined): void {
    if (session) this.#adoptRevision(session.mod_revision);
    else this.#isOver = true;
  }

  /** Replies may arrive in another order. With a revision of before, the next fence would fence nothing off. */
  #adoptRevision(revision: string): void {
    if (BigInt(revision) > BigInt(this.#keyRevision)) this.#keyRevision = revision;
  }
}

const NO_VALUE = Buffer.alloc(0);
