import type { Answers, Freed, Requests } from '../../core/backend.js';
import { atMost } from '../../core/at-most.js';
import { type Timer, systemClock } from '../../core/clock.js';
import { NoAnswerInTime } from '../../core/no-answer-in-time.js';
import type { Link } from './link.js';

const LISTEN_LIMIT_MS = 5_000;
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 1_000;

interface FreedCallsParts {
  connect(): Promise<Link>;
  /** Says whether calls will come over this connection. */
  listen(connection: object, onFreed: (key: string) => void): Promise<boolean>;
  onFreed(freed: Freed): void;
}

/**
 * One connection that only listens for freed keys. It is opened when somebody first has to wait, behind his back, and
 * anew when it is lost while somebody may still wait. Where it cannot be had, waiters look by themselves.
 */
export class FreedCalls {
  readonly #parts: FreedCallsParts;
  #state: 'silent' | 'opening' | 'listening' | 'impossible' | 'closed' = 'silent';
  #wantedUntilMs = 0;
  #pauseMs = FIRST_PAUSE_MS;
  #pause: Timer | undefined;

  constructor(parts: FreedCallsParts) {
    this.#parts = parts;
  }

  /** Of whom must wait, those are called who asked when it listened already: no release can have been missed then. */
  async during(requests: Requests, exchange: () => Promise<Answers>): Promise<Answers> {
    const wasListening = this.#state === 'listening';
    const answers = await exchange();
    const acquire = answers.acquire.map((answer, index) => {
      const againWithinMs = requests.acquire?.[index]?.againWithinMs;
      if (answer.kind !== 'taken' || againWithinMs === undefined) return answer;
      this.#want(againWithinMs);
      return wasListening ? { ...answer, isCalled: true as const } : answer;
    });
    return { ...answers, acquire };
  }

  /** The connection itself is closed with all others. */
  close(): void {
    this.#state = 'closed';
    this.#pause?.cancel();
  }

  #want(forMs: number): void {
    this.#wantedUntilMs = Math.max(this.#wantedUntilMs, systemClock.monotonicMs() + forMs);
    if (this.#state === 'silent') void this.#open();
  }

  async #open(): Promise<void> {
    this.#state = 'opening';
    let link: Link | undefined;
    try {
      link = await this.#parts.connect();
      link.setAwaited(false);
      await this.#listen(link);
    } catch {
      link?.giveUp();
      this.#openAgain();
    }
  }

  async #listen(link: Link): Promise<void> {
    const listening = this.#parts.listen(link.connection, (key) => this.#parts.onFreed({ key }));
    if (!(await atMost(systemClock, LISTEN_LIMIT_MS, listening))) throw new NoAnswerInTime(LISTEN_LIMIT_MS);
    if (this.#state !== 'opening') return;
    if (!(await listening)) {
      this.#state = 'impossible';
      link.giveUp();
      return;
    }
    this.#state = 'listening';
    this.#pauseMs = FIRST_PAUSE_MS;
    void link.ended.then(() => this.#openAgain());
    this.#parts.onFreed({});
  }

  #openAgain(): void {
    if (this.#state === 'closed') return;
    this.#state = 'silent';
    if (systemClock.monotonicMs() > this.#wantedUntilMs) return;
    this.#state = 'opening';
    this.#pause = systemClock.after(this.#pauseMs, () => void this.#open());
    this.#pauseMs = Math.min(this.#pauseMs * 2, LONGEST_PAUSE_MS);
  }
}
