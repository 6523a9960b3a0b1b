import type { LockHandle } from '../../lib/core/leases/lock-handle.js';
import {
  type LockError,
  LockLostError,
  LockShutdownError,
  LockTimeoutError,
  LockUnavailableError,
} from '../../lib/core/errors.js';
import type { Locks } from '../../lib/core/locks.js';
import type { Random } from '../support/random.js';
import type { SimProcess } from './sim-process.js';
import type { Timeline } from './timeline.js';
import type { PendingCall, Hold, InvariantChecker } from './invariant-checker.js';
import type { ScheduleConfig } from './simulation.js';

interface CallersOptions {
  readonly process: SimProcess;
  readonly locks: Locks;
  readonly timeline: Timeline;
  readonly random: Random;
  readonly checker: InvariantChecker;
  readonly config: ScheduleConfig;
  /** Whether requests may wait for a lane of the backend. */
  readonly hasLanes: boolean;
}

const ABORTED = new Error('the caller gave up');
const BROKEN = new Error('the work failed');

/** Even who does not wait for the lock waits so long for the answer. */
const MIN_WAIT_MS = 1_000;
const MAX_RELEASE_MS = 2_000;
const MAX_INSPECT_MS = 5_000;
const SLACK_MS = 60;

const within = (ms: number) => ms * 1.01 + SLACK_MS;

/** Those who want locks in one process, each for a while. */
export class Callers {
  readonly process: SimProcess;
  readonly locks: Locks;
  isShutDown = false;
  /** Whoever is given a lock gives it back at once. */
  releasesAtOnce = false;
  readonly #parts: CallersOptions;
  readonly #abortable = new Set<AbortController>();
  readonly #runningWork = new Set<(error?: Error) => void>();
  readonly #holds = new Set<Hold>();

  constructor(parts: CallersOptions) {
    this.process = parts.process;
    this.locks = parts.locks;
    this.#parts = parts;
  }

  /** Whether some work under a lock is on, or a lock is still to be given back, be it lost. */
  get isWorking(): boolean {
    return this.#runningWork.size > 0 || this.#holds.size > 0;
  }

  acquire(): void {
    const { random, checker, process, config } = this.#parts;
    const { key, leaseMs } = this.#pickRequest();
    const waitMs = random.pick(config.waitsMs);
    const controller = random.chance(0.4) ? new AbortController() : undefined;
    const renew = random.chance(config.renewed);
    const withinMs = within(Math.max(waitMs, MIN_WAIT_MS));
    const pending = checker.started(process, `acquire("${key}", ${waitMs} ms)`, withinMs, key);
    if (controller) this.#abortable.add(controller);
    const options = { leaseMs, waitMs, renew, ...(controller && { signal: controller.signal }) };
    const result = random.chance(0.5)
      ? this.locks.acquire(key, options).then((lock) => this.#hold(pending, key, lock as LockHandle))
      : this.#work(pending, key, options);
    result
      .catch((error: unknown) => this.#refused(pending, error))
      .finally(() => {
        if (controller) this.#abortable.delete(controller);
      });
  }

  tryAcquire(): void {
    const { checker, process } = this.#parts;
    const { key, leaseMs } = this.#pickRequest();
    const pending = checker.started(process, `tryAcquire("${key}")`, within(MIN_WAIT_MS));
    this.locks.tryAcquire(key, { leaseMs }).then(
      (lease) => {
        if (lease) this.#hold(pending, key, lease as LockHandle);
        else checker.settled(pending);
      },
      (error: unknown) => this.#refused(pending, error),
    );
  }

  /** Somebody who waits gives up. */
  abort(): void {
    const [first] = this.#abortable;
    first?.abort(ABORTED);
  }

  /** Some work under a lock ends. */
  endWork(): void {
    const [first] = this.#runningWork;
    if (first) first(this.#parts.random.chance(0.3) ? BROKEN : undefined);
  }

  endAllWork(): void {
    for (const end of [...this.#runningWork]) end();
    for (const hold of this.#holds) this.releaseHold(hold);
  }

  extend(): void {
    const { random, checker, process, config } = this.#parts;
    const hold = this.#someHold();
    if (!hold) return;
    const leaseMs = random.pick(config.leasesMs) * random.pick([1, 1, 3]);
    const pending = checker.started(process, `extend("${hold.key}")`, within(MAX_RELEASE_MS));
    hold.handle.extend(leaseMs).then(
      () => checker.settled(pending),
      (error: unknown) => {
        checker.settled(pending);
        this.#expect(error, [LockLostError, LockUnavailableError]);
      },
    );
  }

  release(): void {
    const hold = this.#someHold();
    if (hold) this.releaseHold(hold);
  }

  releaseHold(hold: Hold): void {
    const { checker, process } = this.#parts;
    if (hold.isReleased) return;
    hold.isReleased = true;
    this.#holds.delete(hold);
    const pending = checker.started(process, `release("${hold.key}")`, within(MAX_RELEASE_MS));
    hold.handle.release().then(
      (isReleased) => {
        checker.settled(pending);
        checker.releaseSettled(hold, isReleased);
      },
      (error: unknown) => {
        checker.settled(pending);
        this.#expect(error, [LockUnavailableError, LockShutdownError]);
      },
    );
  }

  forceRelease(): void {
    const { random, checker, process, config } = this.#parts;
    const key = random.pick(config.keys);
    const pending = checker.started(process, `forceRelease("${key}")`, within(MAX_INSPECT_MS) * 2);
    const force = async () => {
      const info = await this.locks.inspect(key);
      if (info) await this.locks.forceRelease(key, info.fencingToken);
    };
    force().then(
      () => checker.settled(pending),
      (error: unknown) => this.#refused(pending, error),
    );
  }

  shutDown(): void {
    const { random, checker, process, hasLanes } = this.#parts;
    this.isShutDown = true;
    process.isClosing = true;
    const limits = { drainMs: random.pick([0, 100, 3_000]), abortGraceMs: random.pick([0, 100]) };
    // At the end, releases that wait for a lane may still be sent.
    const laneMs = hasLanes ? MAX_RELEASE_MS : 0;
    const withinMs = within(Math.max(limits.drainMs, 1_000) + limits.abortGraceMs + 1_000 + laneMs);
    const pending = checker.started(process, 'shutdown', withinMs);
    this.locks
      .drain(limits)
      .then(() => this.locks.close())
      .then(
        () => checker.settled(pending),
        (error: unknown) => this.#refused(pending, error),
      );
  }

  #pickRequest(): { key: string; leaseMs: number } {
    const { random, config } = this.#parts;
    return { key: random.pick(config.keys), leaseMs: random.pick(config.leasesMs) };
  }

  #someHold(): Hold | undefined {
    const { random, checker, process } = this.#parts;
    const holds = checker.holds.filter((hold) => hold.process === process && !hold.isReleased);
    return holds.length > 0 ? random.pick(holds) : undefined;
  }

  #hold(pending: PendingCall, key: string, handle: LockHandle): void {
    const { random, checker, config } = this.#parts;
    const hold = checker.granted(pending, key, handle, random.chance(0.5));
    this.#holds.add(hold);
    if (this.releasesAtOnce) this.releaseHold(hold);
    else {
      const choices = [
        0,
        random.between(0, 20),
        random.between(0, 300),
        random.between(0, config.longestHold) * config.leasesMs[0]!,
      ];
      this.#later(random.pick(choices), () => this.releaseHold(hold));
    }
  }

  /** Under `withLock`, whose answer must be that of the work. */
  async #work(pending: PendingCall, key: string, options: object): Promise<void> {
    const { random, checker, process } = this.#parts;
    const value = {};
    const progress: { hold?: Hold; ending?: PendingCall; wasLost?: boolean } = {};
    try {
      const result = await this.locks.withLock(key, options, async (lock) => {
        const hold = (progress.hold = checker.granted(pending, key, lock as LockHandle, random.chance(0.5)));
        try {
          await this.#untilEnd();
          progress.wasLost = (lock as LockHandle).isLost;
        } finally {
          const ending = `the end of work under "${key}"`;
          progress.ending = checker.started(process, ending, within(MAX_RELEASE_MS));
          hold.isReleased = true;
        }
        return value;
      });
      if (result !== value) checker.fail(`${process.name} got another value from withLock("${key}")`);
      if (progress.wasLost)
        checker.fail(`${process.name} was not told that "${key}" was lost before its work ended`);
    } catch (error) {
      if (!progress.hold) throw error;
      if (error !== BROKEN) this.#expect(error, [LockLostError]);
    }
    if (progress.ending) checker.settled(progress.ending);
  }

  #untilEnd(): Promise<void> {
    const { random, config } = this.#parts;
    return new Promise((resolve, reject) => {
      const end = (error?: Error) => {
        if (!this.#runningWork.delete(end)) return;
        if (error) reject(error);
        else resolve();
      };
      this.#runningWork.add(end);
      if (this.releasesAtOnce) end();
      else if (random.chance(0.9))
        this.#later(random.pick([1, 30, 200, config.leasesMs[0]! * config.longestHold]), () => end());
    });
  }

  #refused(pending: PendingCall, error: unknown): void {
    this.#parts.checker.settled(pending);
    if (error !== ABORTED) this.#expect(error, [LockTimeoutError, LockUnavailableError, LockShutdownError]);
  }

  #expect(error: unknown, expected: readonly (abstract new (...args: never[]) => LockError)[]): void {
    const { checker, process, config } = this.#parts;
    const isExpected = expected.some((kind) => error instanceof kind);
    if (!isExpected) checker.fail(`${process.name} was told ${String(error)}`);
    if (error instanceof LockShutdownError && !this.isShutDown)
      checker.fail(`${process.name} was told of a shutdown: ${String(error)}`);
    if (config.isCalm && error instanceof LockUnavailableError)
      checker.fail(`${process.name} was told ${String(error)} although nothing was wrong`);
  }

  /** A timer of the callers', not of the locks'. */
  #later(delayMs: number, run: () => void): void {
    if (delayMs === 0) run();
    else this.#parts.timeline.in(delayMs, () => this.process.run('timer', run));
  }
}
