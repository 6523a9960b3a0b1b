import type { Clock, Timer } from '../../lib/core/clock.js';
import type { Random } from '../support/random.js';
import type { Timeline } from './timeline.js';

type Kind = 'timer' | 'message';

interface DeferredWork {
  readonly timer: (() => void)[];
  readonly message: (() => void)[];
}

/** Clocks of two machines run at slightly different speeds: less than what a lease allows for. */
const MAX_CLOCK_DRIFT = 0.008;
const MAX_TIMER_DELAY_MS = 1;
const MAX_SKEW_MS = 3_600_000;

/** A process with clocks of its own and an event loop that may stand still, and that may die. */
export class SimProcess {
  readonly name: string;
  readonly clock: SimClock;
  isDead = false;
  /** What it holds may lapse unnoticed from now on. */
  isClosing = false;
  /** For how long, in all, its event loop has stood still. */
  stalledMs = 0;
  readonly #timeline: Timeline;
  readonly #random: Random;
  #isStopped = false;
  #backlog = 0;
  #deferred: DeferredWork = { timer: [], message: [] };

  constructor(name: string, timeline: Timeline, random: Random) {
    this.name = name;
    this.#timeline = timeline;
    this.#random = random;
    this.clock = new SimClock(this, timeline, random);
  }

  /** Whether its event loop runs. */
  get isAwake(): boolean {
    return !this.isDead && !this.#isStopped;
  }

  /** Whether it also has heard of all that happened while it stood still. */
  get isUpToDate(): boolean {
    return this.isAwake && this.#backlog === 0;
  }

  /** Runs it now, or once the event loop runs again. */
  run(kind: Kind, work: () => void): void {
    if (this.isDead) return;
    if (this.#isStopped) this.#deferred[kind].push(work);
    else work();
  }

  /** The event loop is blocked, or the process stopped. */
  stop(forMs: number): void {
    this.#isStopped = true;
    this.#timeline.in(forMs, () => {
      this.stalledMs += forMs;
      this.#wake();
    });
  }

  /** The whole machine sleeps, and its monotonic clock stands still with it. */
  sleep(forMs: number): void {
    this.clock.suspend(forMs);
    this.stop(forMs);
  }

  /** Never heard of again. */
  crash(): void {
    this.isDead = true;
    this.#deferred = { timer: [], message: [] };
  }

  /** An event loop that was blocked among its timers reads messages next, and the other way round. */
  #wake(): void {
    this.#isStopped = false;
    const { timer, message } = this.#deferred;
    this.#deferred = { timer: [], message: [] };
    const works = this.#random.chance(0.5) ? [...timer, ...message] : [...message, ...timer];
    this.#backlog += works.length;
    for (const work of works) {
      this.#timeline.in(0, () => {
        this.#backlog -= 1;
        this.run('message', work);
      });
    }
  }
}

interface SimTimer {
  readonly dueMs: number;
  readonly callback: () => void;
  isOn: boolean;
}

/** The clocks of one process: none of them shows true time. */
export class SimClock implements Clock {
  /** How many timers are armed. */
  pending = 0;
  readonly #process: SimProcess;
  readonly #timeline: Timeline;
  readonly #random: Random;
  readonly #speed: number;
  readonly #wallAheadMs: number;
  #slept = 0;
  #sleepsFromMs: number | undefined;
  #setByMs = 0;
  #suspendedTimers: SimTimer[] = [];

  constructor(process: SimProcess, timeline: Timeline, random: Random) {
    this.#process = process;
    this.#timeline = timeline;
    this.#random = random;
    this.#speed = 1 + random.between(-MAX_CLOCK_DRIFT, MAX_CLOCK_DRIFT);
    this.#wallAheadMs = Date.UTC(2026, 0, 1) + random.between(-MAX_SKEW_MS, MAX_SKEW_MS);
  }

  get isAsleep(): boolean {
    return this.#sleepsFromMs !== undefined;
  }

  monotonicMs(): number {
    return (this.#timeline.nowMs - this.#sleptMs()) * this.#speed;
  }

  wallMs(): number {
    return this.#wallAheadMs + this.#timeline.nowMs * this.#speed + this.#setByMs;
  }

  after(delayMs: number, callback: () => void): Timer {
    const timer = { dueMs: this.monotonicMs() + delayMs, callback, isOn: true };
    this.pending += 1;
    this.#arm(timer);
    return {
      cancel: () => {
        if (timer.isOn) this.pending -= 1;
        timer.isOn = false;
      },
    };
  }

  suspend(forMs: number): void {
    this.#sleepsFromMs = this.#timeline.nowMs;
    this.#timeline.in(forMs, () => {
      this.#slept = this.#sleptMs();
      this.#sleepsFromMs = undefined;
      for (const timer of this.#suspendedTimers.splice(0)) this.#arm(timer);
    });
  }

  /** As an operator or a time server does. */
  setWallBy(ms: number): void {
    this.#setByMs += ms;
  }

  #sleptMs(): number {
    return this.#slept + (this.#sleepsFromMs === undefined ? 0 : this.#timeline.nowMs - this.#sleepsFromMs);
  }

  #arm(timer: SimTimer): void {
    const leftMs = (timer.dueMs - this.monotonicMs()) / this.#speed;
    const lateMs = this.#random.between(0.001, MAX_TIMER_DELAY_MS);
    this.#timeline.in(Math.max(leftMs, 0) + lateMs, () => this.#fire(timer));
  }

  /** `false`: nobody waits for it any more. */
  #fire(timer: SimTimer): boolean {
    if (!timer.isOn || this.#process.isDead) return false;
    if (this.isAsleep) this.#suspendedTimers.push(timer);
    else if (this.monotonicMs() < timer.dueMs) this.#arm(timer);
    else {
      this.#process.run('timer', () => {
        if (!timer.isOn) return;
        timer.isOn = false;
        this.pending -= 1;
        timer.callback();
      });
    }
    return true;
  }
}
