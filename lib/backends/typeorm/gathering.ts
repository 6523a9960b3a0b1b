import { type Answers, type Requests, neverSent } from '../../core/backend.js';
import { systemClock } from '../../core/clock.js';
import { Call, type Errand, VERBS } from './call.js';
import { Deadline } from './deadline.js';
import type { Visit } from './dialect.js';
import type { Link } from './link.js';

/** A statement for more of them would keep its connection, and the rows it locks, for too long. */
const MOST_AT_ONCE = 1_000;

export interface GatheringParts {
  readonly mostLinks: number;
  connect(): Promise<Link>;
  /** Brings errands of which none was sent yet, and tells each its answer. Never rejects. */
  carry(errands: readonly Errand[], visit: Visit): Promise<void>;
}

/** Somebody who wants a connection to himself. */
interface Visitor {
  readonly deadline: Deadline;
  receive(visit: Visit): Promise<void>;
  refuse(cause: unknown): void;
}

/**
 * Where requests wait for a free connection. The first one leaves at once; what is asked for while all connections are
 * busy gathers, and leaves together. Requests for one key take effect in the order in which they were made.
 */
export class Gathering {
  readonly #parts: GatheringParts;
  readonly #free: Link[] = [];
  readonly #uses = new Set<Promise<void>>();
  readonly #keysUnderWay = new Set<string>();
  readonly #visitors: Visitor[] = [];
  readonly #visits = new Set<Promise<unknown>>();
  #waiting: Errand[] = [];
  /** Free, busy, or being opened. */
  #linkCount = 0;

  constructor(parts: GatheringParts) {
    this.#parts = parts;
  }

  exchange(requests: Requests, limitMs: number): Promise<Answers> {
    const call = new Call(requests, limitMs);
    for (const errand of call.errands) this.#waiting.push(errand);
    this.#send();
    return call.answered;
  }

  /** Does work over a connection that nobody else uses meanwhile. */
  async visit<T>(limitMs: number, work: (visit: Visit) => Promise<T>): Promise<T> {
    using deadline = new Deadline(limitMs);
    const done = new Promise<T>((resolve, reject) => {
      const receive = async (visit: Visit) => {
        deadline.throwIfOver();
        resolve(await work(visit));
      };
      this.#visitors.push({ deadline, refuse: reject, receive: (visit) => receive(visit).catch(reject) });
    });
    const visiting = deadline.within(done);
    this.#visits.add(visiting);
    this.#send();
    try {
      return await visiting;
    } finally {
      this.#visits.delete(visiting);
    }
  }

  /** Settles when all that was asked for has been answered, which limits bound. */
  async close(): Promise<void> {
    await Promise.allSettled([...this.#waiting.map(({ call }) => call.answered), ...this.#visits]);
    await Promise.allSettled(this.#uses);
  }

  #send(): void {
    while (this.#visitors.length > 0 || this.#waiting.length > 0) {
      const link = this.#takeLink();
      if (!link) return;
      const visitor = this.#visitors.shift();
      const errands = visitor ? [] : this.#gather();
      if (visitor) this.#use(link, visitor.deadline, (visit) => visitor.receive(visit));
      else if (errands.length > 0) this.#carry(link, errands);
      else {
        this.#free.push(link); // All of them wait for one that is under way.
        return;
      }
    }
  }

  #carry(link: Link, errands: readonly Errand[]): void {
    const endsAtMs = errands.reduce((latest, { call }) => Math.max(latest, call.endsAtMs), 0);
    const deadline = new Deadline(endsAtMs - systemClock.monotonicMs());
    for (const { request } of errands) this.#keysUnderWay.add(request.key);
    this.#use(link, deadline, async (visit) => {
      await this.#parts.carry(errands, visit);
      deadline[Symbol.dispose]();
      for (const { request } of errands) this.#keysUnderWay.delete(request.key);
    });
  }

  #use(link: Link, deadline: Deadline, work: (visit: Visit) => Promise<void>): void {
    const using = work(link.visit(deadline)).then(() => {
      this.#uses.delete(using);
      if (link.isUsable) this.#free.push(link);
      else this.#drop(link);
      this.#send();
    });
    this.#uses.add(using);
  }

  /** The next errands that may leave together, without those whose time is over or whose turn has not come. */
  #gather(): readonly Errand[] {
    const nowMs = systemClock.monotonicMs();
    const leaving: Errand[] = [];
    const staying: Errand[] = [];
    const ranks = new Map<string, number>();
    for (const errand of this.#waiting) {
      const { call, request, verb } = errand;
      // A blocked event loop may see this before the timer.
      if (nowMs >= call.endsAtMs) call.end();
      if (call.isOver) continue;
      const rank = VERBS.indexOf(verb);
      const isInTurn = rank > (ranks.get(request.key) ?? -1) && !this.#keysUnderWay.has(request.key);
      const leaves = isInTurn && leaving.length < MOST_AT_ONCE;
      ranks.set(request.key, leaves ? rank : VERBS.length);
      (leaves ? leaving : staying).push(errand);
    }
    this.#waiting = staying;
    return leaving;
  }

  #takeLink(): Link | undefined {
    for (let link = this.#free.pop(); link; link = this.#free.pop()) {
      if (link.isUsable) return link;
      this.#drop(link);
    }
    if (this.#linkCount < this.#parts.mostLinks) void this.#open();
    return undefined;
  }

  #drop(link: Link): void {
    this.#linkCount -= 1;
    link.giveUp();
  }

  async #open(): Promise<void> {
    this.#linkCount += 1;
    try {
      this.#free.push(await this.#parts.connect());
    } catch (cause) {
      this.#linkCount -= 1;
      if (this.#linkCount === 0) this.#refuse(cause); // Otherwise there is one that will do.
    }
    this.#send();
  }

  #refuse(cause: unknown): void {
    for (const errand of this.#waiting.splice(0)) errand.call.tell(errand, neverSent(cause));
    for (const visitor of this.#visitors.splice(0)) visitor.refuse(cause);
  }
}
