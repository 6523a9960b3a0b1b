import type { TickRequest } from '../../../../core/backend.js';
import type { AcquireResult } from '../../../../core/backend-results.js';
import {
  type TickClaim,
  type TickRefused,
  type TickState,
  type TickVerdict,
  judgeTick,
} from '../../../../core/tick.js';
import { systemClock } from '../../../../core/clock.js';
import { TICK_MEMORY_MS } from '../../single/stored-lock.js';
import { SLOW_PAUSE_MS, fixedWidth } from '../server-call.js';
import type { QuorumServer } from '../servers/quorum-server.js';
import type { Quorum, RoundOutcome } from './quorum-operation.js';
import type { VoteCount } from './vote-count.js';
import { VoteOperation } from './vote-operation.js';

const MAX_MARK_ROUNDS = 6;

/** The claim of a registration: older than any tick. */
export const REGISTRATION: TickClaim = { tickMs: 0, maxEarlyMs: 0, staleAfterMs: 0 };
/** The result of a registration. Only {@link TickAcquisition.state} is of interest. */
const REGISTERED: TickRefused = { kind: 'refused', reason: 'claimed', aheadMs: 0 };

/** What the second phase writes, and the result once a majority has it. */
interface TickMark {
  readonly command: string;
  readonly result: AcquireResult;
  marked: number;
  lost: number;
}

/**
 * Claims a tick, in two phases. First it acquires the lock of the job's key, so that nothing changes meanwhile, and judges
 * the claim by the newest tick that a majority knows. A tick that was marked on a majority is always among those. Then it
 * marks the tick on a majority. Claims that split the votes retry until one of them has the tick, so that the tick is not
 * lost to contention. A registration is a claim of tick 0: it marks the servers' time if no tick is known.
 */
export class TickAcquisition extends VoteOperation {
  /** All servers, because the newest tick of any server counts. */
  readonly initialServers: number;
  /** What the last claim has found. */
  state: TickState | undefined;
  readonly #request: TickRequest;
  readonly #claimCommand: string;
  /**
   * The newest pause or resumption that the first phase had seen when it decided to mark the tick. A server with a newer
   * pause does not mark it. `undefined` if it has not decided yet.
   */
  #seenPause: string | undefined;
  /** The second phase. */
  #mark: TickMark | undefined;

  constructor(request: TickRequest, quorum: Quorum) {
    super(request, quorum);
    this.#request = request;
    this.initialServers = quorum.servers.allBits;
    const { leaseMs, tokenCount = 1, instance, tick } = request;
    const { tickMs, maxAttempts = 1 } = tick;
    const memoryMs = leaseMs + quorum.servers.quarantineMs;
    const details = `${tokenCount} ${tickMs} ${maxAttempts}`;
    this.#claimCommand = `claim ${leaseMs} ${memoryMs} ${details} ${instance}`;
  }

  get command(): string {
    return this.#mark?.command ?? this.#claimCommand;
  }

  get isSettled(): boolean {
    const { needed, maxFailures } = this.quorum.servers;
    if (this.#mark) return this.#mark.marked >= needed || this.#mark.lost > maxFailures;
    // Even a decided vote needs a majority of replies, because the newest tick of a majority counts.
    return this.voteCount.hasMajorityReplied && this.voteCount.isDecided;
  }

  override onReply(server: QuorumServer, reply: string, timeUs: number): void {
    if (!this.#mark) super.onReply(server, reply, timeUs);
    else if (reply === 'marked') this.#mark.marked += 1;
    else if (reply === 'lost') this.#mark.lost += 1;
  }

  conclude(outcome: RoundOutcome): number | undefined {
    if (!this.#mark) return this.#concludeClaim(this.endVoteRound(outcome), outcome);
    this.endRound(outcome);
    return this.#concludeMark(this.#mark, outcome);
  }

  #concludeClaim(voteCount: VoteCount, outcome: RoundOutcome): number | undefined {
    const { servers } = this.quorum;
    const { roundNumber, ballot, sentAtMs, timeoutMs, wasSent } = outcome;
    // Too late to mark the tick in time. Marking it now would use up the tick without a run.
    if (systemClock.monotonicMs() > sentAtMs + timeoutMs) return this.#retry(SLOW_PAUSE_MS, outcome);
    if (!voteCount.hasMajorityReplied) {
      if (roundNumber === 0 && voteCount.hasCorrectedClocks) return 0;
      if (servers.voting >= servers.needed) return this.#retry(SLOW_PAUSE_MS, outcome);
      return this.finish(servers.noMajorityResult(timeoutMs, wasSent));
    }
    this.state = voteCount.tickState;
    const verdict = this.#judge(voteCount, this.state);
    if (verdict.kind !== 'grant') return this.finish(verdict);
    const fencingToken = voteCount.grantedToken(ballot);
    if (fencingToken === undefined) return this.#retry(this.pauseAfter(voteCount, outcome), outcome);
    this.#seenPause = voteCount.newestPause;
    this.#mark = this.#createMark(verdict.attempt, fencingToken, this.state.nowMs);
    return 0;
  }

  #judge({ newestTick, newestPause }: VoteCount, state: TickState): TickVerdict {
    // Perhaps only a minority has marked the tick, and the others have refused that because of this pause.
    const isPausedSince = state.isPaused && this.#seenPause !== undefined && newestPause !== this.#seenPause;
    // Marked by this claim in an earlier round whose reply was lost.
    if (newestTick?.runner === this.holder && newestTick.attempt > 0 && !isPausedSince)
      return { kind: 'grant', attempt: newestTick.attempt };
    if (this.#isRegistration) return state.claimed ? REGISTERED : { kind: 'grant', attempt: 0 };
    return judgeTick(this.#request.tick, state);
  }

  #createMark(attempt: number, fencingToken: bigint, nowMs: number): TickMark {
    const { leaseMs, tick } = this.#request;
    // At least as long as the run can hold the key.
    const leaseMemoryMs = leaseMs + this.quorum.servers.quarantineMs;
    const memoryMs = Math.max(Math.ceil(tick.cleanUp?.afterMs ?? TICK_MEMORY_MS), leaseMemoryMs);
    const tickMs = this.#isRegistration ? Math.floor(nowMs) : tick.tickMs;
    return {
      // The ms of the tick, then the attempt in three digits.
      command: `mark ${fixedWidth(tickMs * 1_000 + attempt)} ${memoryMs} ${this.#seenPause}`,
      result: this.#isRegistration ? REGISTERED : { kind: 'granted', fencingToken, attempt },
      marked: 0,
      lost: 0,
    };
  }

  get #isRegistration(): boolean {
    return this.#request.tick === REGISTRATION;
  }

  #concludeMark({ result, marked, lost }: TickMark, outcome: RoundOutcome): number | undefined {
    const { servers } = this.quorum;
    if (marked >= servers.needed) return this.finish(result);
    this.#mark = undefined;
    // Claims again: a majority may have the mark all the same, or the mark came too late.
    return lost > servers.maxFailures || outcome.roundNumber < MAX_MARK_ROUNDS
      ? this.#retry(1, outcome)
      : this.finish(servers.noMajorityResult(outcome.timeoutMs));
  }

  /** As long as its caller waits: giving up early could lose the tick for all replicas. */
  #retry(pauseMs: number, { latestEndMs, timeoutMs }: RoundOutcome): number | undefined {
    if (systemClock.monotonicMs() + pauseMs < latestEndMs) return pauseMs;
    return this.finish(this.quorum.servers.noMajorityResult(timeoutMs));
  }
}
