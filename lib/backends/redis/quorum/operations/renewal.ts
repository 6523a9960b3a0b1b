import type { RenewRequest } from '../../../../core/backend.js';
import type { RenewResult } from '../../../../core/backend-results.js';
import { repairServers } from '../replication/read-repair.js';
import type { QuorumServer } from '../servers/quorum-server.js';
import type { Quorum, QuorumOperation, RoundOutcome } from './quorum-operation.js';

/** Renews a lock. It is renewed if a majority still holds it, and lost if so many servers do not that no majority can. */
export class Renewal implements QuorumOperation {
  readonly key: string;
  readonly holder: string;
  readonly command: string;
  readonly initialServers: number;
  result: RenewResult | undefined;
  readonly #leaseMs: number;
  readonly #memoryMs: number;
  readonly #quorum: Quorum;
  readonly #startedAtMs: number;
  /** Servers to which the lock has not been replicated yet, in bits. They need no repair. */
  readonly #uncontacted: number;
  /** A server that holds the lock: the source of a repair. */
  #holdingServer: QuorumServer | undefined;
  /** Servers that replied that they do not hold the lock, in bits: the targets of a repair. */
  #serversWithoutLock = 0;
  #renewed = 0;
  #lost = 0;

  constructor({ key, holder, leaseMs }: RenewRequest, quorum: Quorum, startedAtMs: number) {
    const { servers, replication } = quorum;
    this.key = key;
    this.holder = holder;
    this.#leaseMs = leaseMs;
    this.#memoryMs = leaseMs + servers.quarantineMs;
    this.command = `renew ${leaseMs} ${this.#memoryMs}`;
    this.initialServers = servers.allBits;
    this.#quorum = quorum;
    this.#startedAtMs = startedAtMs;
    this.#uncontacted = replication.uncontactedOf(holder);
  }

  get isSettled(): boolean {
    const { needed, maxFailures } = this.#quorum.servers;
    return this.#renewed >= needed || this.#lost > maxFailures;
  }

  onReply(server: QuorumServer, reply: string): void {
    if (reply === 'renewed') this.#renewed += 1;
    else this.#lost += 1;
    this.onUncountedReply(server, reply);
  }

  onUncountedReply(server: QuorumServer, reply: string): void {
    if (reply === 'renewed') this.#holdingServer ??= server;
    else this.#serversWithoutLock |= server.bit & ~this.#uncontacted;
  }

  conclude({ timeoutMs, wasSent }: RoundOutcome): undefined {
    const { servers } = this.#quorum;
    if (this.#renewed >= servers.needed) this.result = { kind: 'renewed' };
    else if (this.#lost > servers.maxFailures) this.result = { kind: 'lost' };
    else this.result = servers.noMajorityResult(timeoutMs, wasSent);
  }

  onAllReplied(): void {
    void this.repair(this.#startedAtMs);
  }

  /** Copies the lock to servers that do not hold it (any more), if the renewal was granted. */
  async repair(startedAtMs: number): Promise<void> {
    const source = this.#holdingServer;
    if (this.result?.kind !== 'renewed' || !source) return;
    const request = { key: this.key, holder: this.holder, leaseMs: this.#leaseMs, memoryMs: this.#memoryMs };
    await repairServers(this.#quorum, { ...request, source, targets: this.#serversWithoutLock, startedAtMs });
  }
}
