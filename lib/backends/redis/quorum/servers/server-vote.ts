import { type Moment, clocksAgree, momentOf, systemClock } from '../../../../core/clock.js';
import type { Handshake, ServerState } from './handshake.js';
import { Quarantine } from './quarantine.js';

/**
 * Whether the replies of one server count: it is connected, no other address of the quorum leads to it, it is not in
 * quarantine, and its server list is confirmed.
 */
export class ServerVote {
  readonly #quarantine: Quarantine;
  #isConnected = false;
  #isDuplicate = false;
  /** Before this time the same server may also have voted under another address. */
  #uniqueFromMs = -Infinity;
  #fromMs = Infinity;
  /** Until when the server list is confirmed: no server that replies counts another server in its place. */
  #confirmedUntilMs = -Infinity;
  #confirmedAt: Moment | undefined;
  #confirmedRunId: string | undefined;
  #unconfirmedReason = 'not confirmed yet';

  constructor(quarantineMs: number) {
    this.#quarantine = new Quarantine(quarantineMs);
  }

  /** The present run of the server, followed by the earlier runs whose data it kept. */
  get runs(): readonly string[] {
    return this.#quarantine.runs;
  }

  /** How often the server was seen to be a replica, or to have been one. */
  get followCount(): number {
    return this.#quarantine.followCount;
  }

  /** Whether the reply to a request that was sent at `ms` counts. */
  countsSince(ms: number): boolean {
    const isConfirmed = this.#fromMs <= ms && ms < this.#confirmedUntilMs;
    return (
      isConfirmed && this.#confirmedAt !== undefined && clocksAgree(this.#confirmedAt, momentOf(systemClock))
    );
  }

  /** Why the replies of a connected server do not count. */
  get fault(): string {
    const remainingMs = this.#fromMs - systemClock.monotonicMs();
    return remainingMs <= 0 ? `has no vote, ${this.#unconfirmedReason}` : this.#quarantine.fault(remainingMs);
  }

  /** All servers that replied list this one. Valid until `untilMs`, unless this machine sleeps in between. */
  confirm(untilMs: number, at: Moment): void {
    this.#confirmedAt = at;
    this.#confirmedUntilMs = untilMs;
    [this.#confirmedRunId] = this.runs;
  }

  /** Takes the vote away at once. */
  revoke(reason: string): void {
    this.#confirmedUntilMs = -Infinity;
    this.setUnconfirmed(reason);
  }

  /** The reason to report once the present confirmation has ended. */
  setUnconfirmed(reason: string): void {
    this.#unconfirmedReason = reason;
  }

  /** The server has replied to a request that was sent then. `persists`: a restart now would lose nothing. */
  markRunning(sentAt: Moment, persists?: boolean): void {
    this.#quarantine.markRunning(sentAt, persists);
  }

  /** @throws Error if the server is a replica */
  onHandshake(handshake: Handshake): void {
    this.#quarantine.onHandshake(handshake, momentOf(systemClock));
    if (handshake.isReplica) throw new Error('it is a replica of another server');
    // Another server, or one that lost its data: the earlier confirmation does not hold for it.
    if (!this.runs.some((run) => run === this.#confirmedRunId)) this.revoke('not confirmed yet');
  }

  /** The state was read again. The server has no vote for a while if it was a replica meanwhile. */
  onState({ persists, replication }: ServerState, sentAt: Moment): void {
    if (replication) this.#quarantine.onReplicationState(replication, momentOf(systemClock));
    if (persists !== undefined) this.markRunning(sentAt, persists);
    this.#update();
  }

  /** The server has refused a write because it is a replica. */
  onReadOnly(): void {
    this.#quarantine.onReplica(momentOf(systemClock));
    this.#update();
  }

  setConnected(isConnected: boolean): void {
    this.#isConnected = isConnected;
    this.#update();
  }

  /** Another address of the quorum leads to this same server, and has its vote; or none does (any more). */
  setDuplicateOf(original: ServerVote | undefined): void {
    const hadVote = this.countsSince(systemClock.monotonicMs());
    this.#isDuplicate = original !== undefined;
    // The address that takes over the vote has it only for requests from now on.
    const voteOwner = original ?? this;
    if (!original || hadVote) voteOwner.#uniqueFromMs = systemClock.monotonicMs();
    voteOwner.#update();
    this.#update();
  }

  #update(): void {
    const isEligible = this.#isConnected && !this.#isDuplicate;
    this.#fromMs = isEligible ? Math.max(this.#quarantine.endsAtMs, this.#uniqueFromMs) : Infinity;
  }
}
