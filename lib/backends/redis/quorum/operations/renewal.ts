import type { RenewRequest, RenewResult } from '../../../../core/backend.js';
import type { QuorumServer } from '../servers/quorum-server.js';
import type { QuorumServers } from '../servers/quorum-servers.js';
import type { Quorum, QuorumOperation, RoundOutcome } from './quorum-operation.js';

/** Renews a lock. It is renewed if a majority still holds it, and lost if so many servers do not that no majority can. */
export class Renewal implements QuorumOperation {
  readonly key: string;
  readonly holder: string;
  readonly leaseMs: number;
  readonly command: string;
  result: RenewResult | undefined;
  /** A server that holds the lock: the source of a repair. */
  holdingServer: QuorumServer | undefined;
  /** Servers that replied that they do not hold the lock, in bits: the targets of a repair. */
  serversWithoutLock = 0;
  /** Servers to which the lock has not been replicated yet, in bits. They need no repair. */
  readonly #uncontacted: number;
  readonly #servers: QuorumServers;
  #renewed = 0;
  #lost = 0;

  constructor({ key, holder, leaseMs }: RenewRequest, command: string, { servers, replication }: Quorum) {
    this.key = key;
    this.holder = holder;
    this.leaseMs = leaseMs;
    this.command = command;
    this.#servers = servers;
    this.#uncontacted = replication.uncontactedOf(holder);
  }

  get initialServers(): number {
    return this.#servers.allBits;
  }

  get isSettled(): boolean {
    return this.#renewed >= this.#servers.needed || this.#lost > this.#servers.maxFailures;
  }

  onReply(server: QuorumServer, reply: string): void {
    if (reply === 'renewed') this.#renewed += 1;
    else this.#lost += 1;
    this.onUncountedReply(server, reply);
  }

  onUncountedReply(server: QuorumServer, reply: string): void {
    if (reply === 'renewed') this.holdingServer ??= server;
    else this.serversWithoutLock |= server.bit & ~this.#uncontacted;
  }

  onNoReply(): void {
    // Whether the lease goes on there is unknown. The other servers decide.
  }

  conclude({ timeoutMs, wasSent }: RoundOutcome): undefined {
    if (this.#renewed >= this.#servers.needed) this.result = { kind: 'renewed' };
    else if (this.#lost > this.#servers.maxFailures) this.result = { kind: 'lost' };
    else this.result = this.#servers.noMajorityResult(timeoutMs, wasSent);
  }
}
