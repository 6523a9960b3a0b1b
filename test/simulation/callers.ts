import type { Lease } from '../../lib/core/lease.js';
import {
  type LockError,
  LockLostError,
  LockShutdownError,
  LockTimeoutError,
  LockUnavailableError,
} from '../../lib/core/errors.js';
import type { Locks } from '../../lib/core/locks.js';
import type { Random } from '../random.js';
import type { SimProcess } from './sim-process.js';
import type { Timeline } from './timeline.js';
import type { Asked, Hold, Witness } from './witness.js';
import type { Terms } from './world.js';

interface CallersParts {
  readonly process: SimProcess;
  readonly locks: Locks;
  readonly timeline: Timeline;
  readonly random: Random;
  readonly witness: Witness;
  readonly terms: Terms;
}

const ABORTED = new Error('the caller gave up');
const BROKEN = new Error('the work failed');

/** Even who does not wait for the lock waits so long for the answer. */
const SHORTEST_PATIENCE_MS = 1_000;
const LONGEST_RELEASE_MS = 2_000;
const LONGEST_LOOK_MS = 5_000;
const SLACK_MS = 60;

const within = (ms: number) => ms * 1.01 + SLACK_MS;

/** Those who want locks in one process, each for a while. */
export class Callers {
  readonly process: SimProcess;
  readonly locks: Locks;
  isShutDown = false;
  /** Whoever is given a lock gives it back at once. */
  isInHaste = false;
  readonly #parts: CallersParts;
  readonly #patient = new Set<AbortController>();
  readonly #works = new Set<(error?: Error) => void>();
  readonly #holds = new Set<Hold>();

  constructor(parts: CallersParts) {
    this.process = parts.process;
    this.locks = parts.locks;
    this.#parts = parts;
  }

  /** Whether some work under a lock is on, or a lock is still to be given back, be it lost. */
  get isWorking(): boolean {
    return this.#works.size > 0 || this.#holds.size > 0;
  }

  acquire(): void {
    const { random, witness, process, terms } = this.#parts;
    const { key, leaseMs } = this.#wish();
    const waitMs = random.pick(terms.waitsMs);
    const controller = random.chance(0.4) ? new AbortController() : undefined;
    const renew = random.chance(terms.renewed);
    const withinMs = within(Math.max(waitMs, SHORTEST_PATIENCE_MS));
    const asked = witness.asks(process, `acquire("${key}", ${waitMs} ms)`, withinMs, key);
    if (controller) this.#patient.add(controller);
    const options = { leaseMs, waitMs, renew, ...(controller && { signal: controller.signal }) };
    const answer = random.chance(0.5)
      ? this.locks.acquire(key, options).then((lease) => this.#hold(asked, key, lease as Lease))
      : this.#work(asked, key, options);
    answer
      .catch((error: unknown) => this.#refused(asked, error))
      .finally(() => {
        if (controller) this.#patient.delete(controller);
      });
  }

  tryAcquire(): void {
    const { witness, process } = this.#parts;
    const { key, leaseMs } = this.#wish();
    const asked = witness.asks(process, `tryAcquire("${key}")`, within(SHORTEST_PATIENCE_MS));
    this.locks.tryAcquire(key, { leaseMs }).then(
      (lease) => {
        if (lease) this.#hold(asked, key, lease as Lease);
        else witness.hears(asked);
      },
      (error: unknown) => this.#refused(asked, error),
    );
  }

  /** Somebody who waits gives up. */
  abort(): void {
    const [first] = this.#patient;
    first?.abort(ABORTED);
  }

  /** Some work under a lock ends. */
  endWork(): void {
    const [first] = this.#works;
    if (first) first(this.#parts.random.chance(0.3) ? BROKEN : undefined);
  }

  endAllWork(): void {
    for (const end of [...this.#works]) end();
    for (const hold of this.#holds) this.giveBack(hold);
  }

  extend(): void {
    const { random, witness, process, terms } = this.#parts;
    const hold = this.#someHold();
    if (!hold) return;
    const leaseMs = random.pick(terms.leasesMs) * random.pick([1, 1, 3]);
    const asked = witness.asks(process, `extend("${hold.key}")`, within(LONGEST_RELEASE_MS));
    hold.lease.extend(leaseMs).then(
      () => witness.hears(asked),
      (error: unknown) => {
        witness.hears(asked);
        this.#expect(error, [LockLostError, LockUnavailableError]);
      },
    );
  }

  release(): void {
    const hold = this.#someHold();
    if (hold) this.giveBack(hold);
  }

  giveBack(hold: Hold): void {
    const { witness, process } = this.#parts;
    if (hold.isGivenBack) return;
    hold.isGivenBack = true;
    this.#holds.delete(hold);
    const asked = witness.asks(process, `release("${hold.key}")`, within(LONGEST_RELEASE_MS));
    hold.lease.release().then(
      (isReleased) => {
        witness.hears(asked);
        witness.gaveBack(hold, isReleased);
      },
      (error: unknown) => {
        witness.hears(asked);
        this.#expect(error, [LockUnavailableError, LockShutdownError]);
      },
    );
  }

  forceRelease(): void {
    const { random, witness, process, terms } = this.#parts;
    const key = random.pick(terms.keys);
    const asked = witness.asks(process, `forceRelease("${key}")`, within(LONGEST_LOOK_MS) * 2);
    const force = async () => {
      const info = await this.locks.inspect(key);
      if (info) await this.locks.forceRelease(key, info.fencingToken);
    };
    force().then(
      () => witness.hears(asked),
      (error: unknown) => this.#refused(asked, error),
    );
  }

  shutDown(): void {
    const { random, witness, process } = this.#parts;
    this.isShutDown = true;
    process.isClosing = true;
    const limits = { drainMs: random.pick([0, 100, 3_000]), abortGraceMs: random.pick([0, 100]) };
    const withinMs = within(Math.max(limits.drainMs, 1_000) + limits.abortGraceMs + 1_000);
    const asked = witness.asks(process, 'shutdown', withinMs);
    this.locks
      .drain(limits)
      .then(() => this.locks.close())
      .then(
        () => witness.hears(asked),
        (error: unknown) => this.#refused(asked, error),
      );
  }

  #wish(): { key: string; leaseMs: number } {
    const { random, terms } = this.#parts;
    return { key: random.pick(terms.keys), leaseMs: random.pick(terms.leasesMs) };
  }

  #someHold(): Hold | undefined {
    const { random, witness, process } = this.#parts;
    const holds = witness.holds.filter((hold) => hold.process === process && !hold.isGivenBack);
    return holds.length > 0 ? random.pick(holds) : undefined;
  }

  #hold(asked: Asked, key: string, lease: Lease): void {
    const { random, witness, terms } = this.#parts;
    const hold = witness.delivered(asked, key, lease, random.chance(0.5));
    this.#holds.add(hold);
    if (this.isInHaste) this.giveBack(hold);
    else {
      const choices = [
        0,
        random.between(0, 20),
        random.between(0, 300),
        random.between(0, terms.longestHold) * terms.leasesMs[0]!,
      ];
      this.#later(random.pick(choices), () => this.giveBack(hold));
    }
  }

  /** Under `withLock`, whose answer must be that of the work. */
  async #work(asked: Asked, key: string, options: object): Promise<void> {
    const { random, witness, process } = this.#parts;
    const value = {};
    const turn: { hold?: Hold; ending?: Asked; wasLost?: boolean } = {};
    try {
      const answer = await this.locks.withLock(key, options, async (lock) => {
        const hold = (turn.hold = witness.delivered(asked, key, lock as Lease, random.chance(0.5)));
        await this.#untilEnd();
        turn.wasLost = (lock as Lease).isLost;
        turn.ending = witness.asks(process, `the end of work under "${key}"`, within(LONGEST_RELEASE_MS));
        hold.isGivenBack = true;
        return value;
      });
      if (answer !== value) witness.fail(`${process.name} got another value from withLock("${key}")`);
      if (turn.wasLost)
        witness.fail(`${process.name} was not told that "${key}" was lost before its work ended`);
    } catch (error) {
      if (!turn.hold) throw error;
      turn.hold.isGivenBack = true;
      if (error !== BROKEN) this.#expect(error, [LockLostError]);
    }
    if (turn.ending) witness.hears(turn.ending);
  }

  #untilEnd(): Promise<void> {
    const { random, terms } = this.#parts;
    return new Promise((resolve, reject) => {
      const end = (error?: Error) => {
        if (!this.#works.delete(end)) return;
        if (error) reject(error);
        else resolve();
      };
      this.#works.add(end);
      if (this.isInHaste) end();
      else if (random.chance(0.9))
        this.#later(random.pick([1, 30, 200, terms.leasesMs[0]! * terms.longestHold]), () => end());
    });
  }

  #refused(asked: Asked, error: unknown): void {
    this.#parts.witness.hears(asked);
    if (error !== ABORTED) this.#expect(error, [LockTimeoutError, LockUnavailableError, LockShutdownError]);
  }

  #expect(error: unknown, expected: readonly (abstract new (...args: never[]) => LockError)[]): void {
    const { witness, process, terms } = this.#parts;
    const isExpected = expected.some((kind) => error instanceof kind);
    if (!isExpected) witness.fail(`${process.name} was told ${String(error)}`);
    if (error instanceof LockShutdownError && !this.isShutDown)
      witness.fail(`${process.name} was told of a shutdown: ${String(error)}`);
    if (terms.isCalm && error instanceof LockUnavailableError)
      witness.fail(`${process.name} was told ${String(error)} although nothing was wrong`);
  }

  /** A timer of the callers', not of the locks'. */
  #later(delayMs: number, run: () => void): void {
    if (delayMs === 0) run();
    else this.#parts.timeline.in(delayMs, () => this.process.run('timer', run));
  }
}
