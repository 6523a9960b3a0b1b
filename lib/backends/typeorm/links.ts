import { atMost } from '../../core/at-most.js';
import { type Timer, systemClock } from '../../core/clock.js';
import type { Link } from './link.js';

/** Before another connection is tried beside one that stands, while the database takes no more of them. */
const PAUSE_MS = 1_000;

/** After such a silence of a connection that was idle, another one is opened beside it. */
const SILENCE_MS = 500;
/** After such a silence it is given up, also if no other can be opened. */
const CHECK_LIMIT_MS = 10_000;

interface LinksParts {
  readonly most: number;
  connect(): Promise<Link>;
  /** A connection is free, or another may be opened. */
  onChange(): void;
  /** There is no connection, and none can be had for now. */
  onRefused(cause: unknown): void;
}

/** The connections over which requests leave. None is opened that nobody asks for, and none after the end. */
export class Links {
  readonly #parts: LinksParts;
  #free: Link[] = [];
  /** Free or busy. */
  #standing = 0;
  #opening = 0;
  #pause: Timer | undefined;
  #isClosed = false;
  /** Was idle, and has not answered yet. */
  #checked: Link | undefined;
  #isSilent = false;

  constructor(parts: LinksParts) {
    this.#parts = parts;
  }

  /** After {@link take} found none. */
  get mayOpen(): boolean {
    if (this.#free.length > 0) return this.#checked === undefined;
    const isPausing = this.#pause !== undefined && this.#standing > 0;
    return !this.#isClosed && !isPausing && this.#standing + this.#opening < this.#parts.most;
  }

  /** One that can be used at once. */
  take(): Link | undefined {
    for (let link = this.#free.pop(); link; link = this.#free.pop()) {
      if (link.isUsable && !link.needsCheck) return link;
      if (link.isUsable) {
        this.#free.push(link);
        return undefined;
      }
      this.#drop(link);
    }
    return undefined;
  }

  giveBack(link: Link): void {
    if (link.isUsable) this.#free.push(link);
    else this.#drop(link);
    this.#refuseIfClosed();
  }

  /** Makes one ready that was idle, or opens another. */
  async open(): Promise<void> {
    const idle = this.#free.pop();
    await (idle ? this.#check(idle) : this.#connect());
    this.#refuseIfClosed();
    this.#parts.onChange();
  }

  /** A slow answer is as good as any: what is silent stays until another connection stands or its place is needed. */
  async #check(idle: Link): Promise<void> {
    this.#checked = idle;
    const answer = idle.answers(CHECK_LIMIT_MS);
    if (!(await atMost(systemClock, SILENCE_MS, answer))) this.#replaceSilent();
    const answers = await answer;
    if (this.#checked !== idle) return;
    if (answers) this.#free.push(idle);
    else this.#drop(idle);
    this.#endCheck();
  }

  /** Where one is gone, those that were idle for longer will be gone too. */
  #replaceSilent(): void {
    this.#isSilent = true;
    const idle = this.#free.filter((link) => link.needsCheck);
    this.#free = this.#free.filter((link) => !idle.includes(link));
    for (const link of idle) this.#drop(link);
    if (this.#standing >= this.#parts.most) this.#dropSilent();
    this.#parts.onChange();
  }

  #dropSilent(): void {
    if (!this.#checked || !this.#isSilent) return;
    this.#drop(this.#checked);
    this.#endCheck();
  }

  #endCheck(): void {
    this.#checked = undefined;
    this.#isSilent = false;
  }

  async #connect(): Promise<void> {
    this.#opening += 1;
    try {
      this.#free.push(await this.#parts.connect());
      this.#standing += 1;
      this.#dropSilent();
    } catch (cause) {
      this.#failed(cause);
    } finally {
      this.#opening -= 1;
    }
  }

  /** What stands may still be used; when nothing does, whoever waits is refused. */
  close(): void {
    this.#isClosed = true;
    this.#pause?.cancel();
    this.#refuseIfClosed();
  }

  #failed(cause: unknown): void {
    if (this.#standing === 0) {
      this.#parts.onRefused(cause);
      return;
    }
    if (this.#isClosed) return;
    this.#pause?.cancel();
    this.#pause = systemClock.after(PAUSE_MS, () => {
      this.#pause = undefined;
      this.#parts.onChange();
    });
  }

  #refuseIfClosed(): void {
    if (!this.#isClosed || this.#standing + this.#opening > 0) return;
    this.#parts.onRefused(new Error('the connections to the database were closed'));
  }

  #drop(link: Link): void {
    this.#standing -= 1;
    link.giveUp();
  }
}
