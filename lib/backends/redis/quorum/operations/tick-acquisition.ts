import type { AcquireResult, TickClaim, TickRequest } from '../../../../core/backend.js';
import { systemClock } from '../../../../core/clock.js';
import { type TickVerdict, judgeTick } from '../../../../core/tick-verdict.js';
import { encodeClaim, tickMemoryMs } from '../commands.js';
import { fixedWidth } from '../server-call.js';
import type { QuorumServer } from '../servers/quorum-server.js';
import { type QuorumServers, medianOf } from '../servers/quorum-servers.js';
import { HeldVotes } from './held-votes.js';
import type { Quorum, QuorumOperation, RoundOutcome } from './quorum-operation.js';
import { VoteCount } from './vote-count.js';

const MAX_DOUBLINGS = 6;
const SLOW_PAUSE_MS = 20;

/** What the second phase writes, and the result once a majority has it. */
interface TickMark {
  readonly command: string;
  readonly result: AcquireResult;
}

/**
 * Claims a tick, in two phases. First it acquires the lock of the job's key, so that nothing changes meanwhile, and judges
 * the claim by the newest tick that a majority knows. A tick that was marked on a majority is always among those. Then it
 * marks the tick on a majority. Claims that split the votes retry until one of them has the tick, so that the tick is not
 * lost to contention.
 */
export class TickAcquisition implements QuorumOperation {
  readonly key: string;
  readonly holder: string;
  result: AcquireResult | undefined;
  newestTokenUs = 0;
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
    const nowMs = medianOf(voteCount.serverTimesMs);
    const verdict = this.#judge(voteCount, nowMs);
    if (verdict.kind !== 'grant' && verdict.kind !== 'register') return this.#finish(verdict);
    if (fencingToken !== undefined) {
      this.#mark = this.#createMark(verdict, { fencingToken, nowMs });
      return 0;
    }
    const hasPriority = voteCount.hasPriority(this.holder, outcome.ballot.firstUs);
    if (!hasPriority && !voteCount.needsLargerBallot) this.#heldVotes.release();
    return this.#retry(voteCount.pauseMs(Math.min(outcome.roundNumber, MAX_DOUBLINGS), hasPriority), outcome);
  }

  #judge(voteCount: VoteCount, nowMs: number): TickVerdict {
    const claimed = voteCount.newestTick;
    // Marked by this claim in an earlier round whose reply was lost.
    if (claimed?.runner === this.holder && claimed.attempt > 0)
      return { kind: 'grant', attempt: claimed.attempt };
    const aliveUntilMs = claimed?.aliveUntilMs ?? 0;
    return judgeTick(this.#tick, { claimed, heldForMs: voteCount.heldForMs, aliveUntilMs, nowMs });
  }

  #createMark(
    verdict: Extract<TickVerdict, { kind: 'grant' | 'register' }>,
    { fencingToken, nowMs }: { fencingToken: bigint; nowMs: number },
  ): TickMark {
    const isGrant = verdict.kind === 'grant';
    const tickUs =
      (isGrant ? this.#tick.tickMs : Math.floor(nowMs)) * 1_000 + (isGrant ? verdict.attempt : 0);
    return {
      // The ms of the tick, then the attempt in three digits.
      command: `mark ${fixedWidth(tickUs)} ${this.#memoryMs} ${isGrant ? 0 : 1}`,
      result: isGrant
        ? { kind: 'granted', fencingToken, attempt: verdict.attempt }
        : { kind: 'refused', reason: 'registered', aheadMs: verdict.aheadMs },
    };
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
