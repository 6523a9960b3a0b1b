import type {
  AcquireResult,
  TickClaim,
  TickRefused,
  TickRequest,
  TickState,
} from '../../../../core/backend.js';
import { systemClock } from '../../../../core/clock.js';
import { type TickVerdict, judgeTick } from '../../../../core/tick-verdict.js';
import { encodeClaim, tickMemoryMs } from '../commands.js';
import { fixedWidth } from '../server-call.js';
import type { QuorumServer } from '../servers/quorum-server.js';
import type { QuorumServers } from '../servers/quorum-servers.js';
import { HeldVotes } from './held-votes.js';
import type { Quorum, QuorumOperation, RoundOutcome } from './quorum-operation.js';
import { type KnownTick, VoteCount } from './vote-count.js';

const MAX_DOUBLINGS = 6;
const SLOW_PAUSE_MS = 20;

/** The claim of a registration: older than any tick. */
export const REGISTRATION: TickClaim = { tickMs: 0, maxEarlyMs: 0, staleAfterMs: 0 };
/** The result of a registration. Only {@link TickAcquisition.state} is of interest. */
const REGISTERED: TickRefused = { kind: 'refused', reason: 'claimed', aheadMs: 0 };

/** What the second phase writes, and the result once a majority has it. */
interface TickMark {
  readonly command: string;
  readonly result: AcquireResult;
}

/**
 * Claims a tick, in two phases. First it acquires the lock of the job's key, so that nothing changes meanwhile, and judges
 * the claim by the newest tick that a majority knows. A tick that was marked on a majority is always among those. Then it
 * marks the tick on a majority. Claims that split the votes retry until one of them has the tick, so that the tick is not
 * lost to contention. A registration is a claim of tick 0: it marks the servers' time if no tick is known.
 */
export class TickAcquisition implements QuorumOperation {
  readonly key: string;
  readonly holder: string;
  result: AcquireResult | undefined;
  newestTokenUs = 0;
  /** What the last claim has found. */
  state: TickState | undefined;
  readonly #tick: TickClaim;
  readonly #claimCommand: string;
  /** How long the servers remember the tick. */
  readonly #memoryMs: number;
  readonly #servers: QuorumServers;
  readonly #heldVotes: HeldVotes;
  #voteCount: VoteCount;
  #mark: TickMark | undefined;
  #marked = 0;
  #lost = 0;

  constructor(request: TickRequest, quorum: Quorum) {
    const { servers } = quorum;
    this.key = request.key;
    this.holder = request.holder;
    this.#tick = request.tick;
    this.#claimCommand = encodeClaim(request, servers.quarantineMs);
    this.#memoryMs = tickMemoryMs(request, servers.quarantineMs);
    this.#servers = servers;
    this.#heldVotes = new HeldVotes(request, quorum);
    this.#voteCount = new VoteCount(servers);
  }

  /** All servers, because the newest tick of any server counts. */
  get initialServers(): number {
    return this.#servers.allBits;
  }

  get command(): string {
    return this.#mark?.command ?? this.#claimCommand;
  }

  get isSettled(): boolean {
    const { needed, maxFailures } = this.#servers;
    if (this.#mark) return this.#marked >= needed || this.#lost > maxFailures;
    // Even a decided vote needs a majority of replies, because the newest tick of a majority counts.
    return this.#voteCount.usableReplies >= needed && this.#voteCount.isDecided;
  }

  onReply(server: QuorumServer, reply: string, timeUs: number): void {
    if (reply === 'marked') this.#marked += 1;
    else if (reply === 'lost') this.#lost += 1;
    else if (!this.#mark) {
      if (reply.startsWith('granted')) this.#heldVotes.add(server);
      this.#voteCount.countReply(reply, timeUs);
    }
  }

  onUncountedReply(server: QuorumServer, reply: string): void {
    this.#heldVotes.onLateReply(server);
    if (reply.startsWith('granted')) this.#heldVotes.add(server);
  }

  onNoReply(server: QuorumServer, wasSent: boolean): void {
    if (wasSent) this.#heldVotes.addUncertain(server);
  }

  conclude(outcome: RoundOutcome): number | undefined {
    this.#heldVotes.endRound(outcome);
    return this.#mark ? this.#concludeMark(this.#mark, outcome) : this.#concludeClaim(outcome);
  }

  #concludeClaim(outcome: RoundOutcome): number | undefined {
    const voteCount = this.#voteCount;
    const { needed } = this.#servers;
    const fencingToken = voteCount.grantedToken(outcome.ballot);
    const isRefused = voteCount.usableReplies < needed && voteCount.refusedReplies > 0;
    this.newestTokenUs = Math.max(
      this.newestTokenUs,
      isRefused ? 0 : outcome.ballot.us,
      voteCount.newestTokenUs,
    );
    this.#voteCount = new VoteCount(this.#servers);
    // Too late to mark the tick in time. Marking it now would use up the tick without a run.
    if (systemClock.monotonicMs() > outcome.sentAtMs + outcome.timeoutMs)
      return this.#retry(SLOW_PAUSE_MS, outcome);
    if (voteCount.usableReplies < needed) {
      const isClockCorrected =
        outcome.roundNumber === 0 && voteCount.usableReplies + voteCount.refusedReplies >= needed;
      if (isClockCorrected) return 0;
      // Slow servers are asked again: giving up could lose the tick for all replicas.
      if (this.#servers.voting >= needed) return this.#retry(SLOW_PAUSE_MS, outcome);
      return this.#finish(this.#servers.noMajorityResult(outcome.timeoutMs, outcome.wasSent));
    }
    this.state = voteCount.tickState;
    const verdict = this.#judge(voteCount.newestTick, this.state);
    if (verdict.kind !== 'grant') return this.#finish(verdict);
    if (fencingToken !== undefined) {
      this.#mark = this.#createMark(verdict.attempt, fencingToken, this.state.nowMs);
      return 0;
    }
    const hasPriority = voteCount.hasPriority(this.holder, outcome.ballot.firstUs);
    if (!hasPriority && !voteCount.needsLargerBallot) this.#heldVotes.release();
    return this.#retry(voteCount.pauseMs(Math.min(outcome.roundNumber, MAX_DOUBLINGS), hasPriority), outcome);
  }

  #judge(newestTick: KnownTick | undefined, state: TickState): TickVerdict {
    // Marked by this claim in an earlier round whose reply was lost.
    if (newestTick?.runner === this.holder && newestTick.attempt > 0)
      return { kind: 'grant', attempt: newestTick.attempt };
    if (this.#isRegistration) return state.claimed ? REGISTERED : { kind: 'grant', attempt: 0 };
    return judgeTick(this.#tick, state);
  }

  #createMark(attempt: number, fencingToken: bigint, nowMs: number): TickMark {
    const tickMs = this.#isRegistration ? Math.floor(nowMs) : this.#tick.tickMs;
    return {
      // The ms of the tick, then the attempt in three digits.
      command: `mark ${fixedWidth(tickMs * 1_000 + attempt)} ${this.#memoryMs}`,
      result: this.#isRegistration ? REGISTERED : { kind: 'granted', fencingToken, attempt },
    };
  }

  get #isRegistration(): boolean {
    return this.#tick === REGISTRATION;
  }

  #concludeMark({ result }: TickMark, outcome: RoundOutcome): number | undefined {
    if (this.#marked >= this.#servers.needed) return this.#finish(result);
    const wasLost = this.#lost > this.#servers.maxFailures;
    this.#mark = undefined;
    this.#marked = 0;
    this.#lost = 0;
    // Claims again: a majority may have the mark all the same, or the mark came too late.
    return wasLost || outcome.roundNumber < MAX_DOUBLINGS
      ? this.#retry(1, outcome)
      : this.#finish(this.#servers.noMajorityResult(outcome.timeoutMs));
  }

  #retry(pauseMs: number, { endsAtMs, timeoutMs }: RoundOutcome): number | undefined {
    if (systemClock.monotonicMs() + pauseMs < endsAtMs) return pauseMs;
    return this.#finish(this.#servers.noMajorityResult(timeoutMs));
  }

  #finish(result: AcquireResult): number | undefined {
    this.result = result;
    if (result.kind === 'granted') this.#heldVotes.markWon();
    else this.#heldVotes.markLost();
    return undefined;
  }
}
