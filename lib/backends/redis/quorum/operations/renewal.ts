import { type RenewResult, type RenewRequest } from '../../../../core/backend.js';
import type { QuorumOperation, Quorum, RoundOutcome } from './quorum-operation.js';
import type { QuorumServer } from '../servers/quorum-server.js';
import type { QuorumServers } from '../servers/quorum-servers.js';

/** Renews a lock, which takes a majority that still holds it. */
export class Renewal implements QuorumOperation {
  readonly key: string;
  readonly holder: string;
  readonly leaseMs: number;
  readonly command: string;
  result: RenewResult | undefined;
  /** A server that holds it, and, in bits, those that do not, although they answer. */
  holdingServer: QuorumServer | undefined;
  serversWithoutLock = 0;
  /** Servers that do not hold it yet, in bits. */
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
    // Its lease runs on there, or it does not: the others decide.
  }

  conclude({ timeoutMs, wasSent }: RoundOutcome): undefined {
    if (this.#renewed >= this.#servers.needed) this.result = { kind: 'renewed' };
    else if (this.#lost > this.#servers.maxFailures) this.result = { kind: 'lost' };
    else this.result = this.#servers.noMajorityResult(timeoutMs, wasSent);
  }
}
