import { type Answers, type Requests, neverSent } from '../../core/backend.js';
import { systemClock } from '../../core/clock.js';
import { queueMicrotask } from '../../core/real-time.js';
import { Call, type Errand, VERBS } from './call.js';
import { Deadline } from './deadline.js';
import type { Visit } from './dialect.js';
import { KeysUnderWay } from './keys-under-way.js';
import type { Link } from './link.js';
import { Links } from './links.js';

/** A statement for more of them would keep its connection, and the rows it locks, for too long. */
const MOST_AT_ONCE = 1_000;

interface GatheringParts {
  readonly mostLinks: number;
  connect(): Promise<Link>;
  /**
   * Brings errands of which none was sent yet, and tells each its answer. `settle` is for one whose statement has ended,
   * also if nobody waits for the answer any more. Never rejects.
   */
  carry(errands: readonly Errand[], visit: Visit, settle: (errand: Errand) => void): Promise<void>;
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
  readonly #links: Links;
  readonly #uses = new Set<Promise<void>>();
  readonly #keysUnderWay = new KeysUnderWay();
  readonly #visits = new Set<Promise<unknown>>();
  #visitors: Visitor[] = [];
  #waiting: Errand[] = [];
  #wasVisitLast = false;
  #willSend = false;

  constructor(parts: GatheringParts) {
    this.#parts = parts;
    this.#links = new Links({
      most: parts.mostLinks,
      connect: () => parts.connect(),
      onChange: () => this.#send(),
      onRefused: (cause) => this.#refuse(cause),
    });
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

  /**
   * Opens nothing any more; what waits for a connection leaves over those that stand, or is refused. Settles when all
   * that was asked for has been answered, which limits bound.
   */
  async close(): Promise<void> {
    this.#links.close();
    await Promise.allSettled([...this.#waiting.map(({ call }) => call.answered), ...this.#visits]);
    await Promise.allSettled(this.#uses);
  }

  #send(): void {
    while (this.#someoneWaits) {
      const link = this.#links.take();
      if (!link) {
        this.#open();
        return;
      }
      if (!this.#leave(link)) {
        this.#links.giveBack(link); // All of them wait for one that is under way.
        return;
      }
    }
  }

  /** Once for all keys that a statement sets free. */
  #sendSoon(): void {
    if (this.#willSend) return;
    this.#willSend = true;
    queueMicrotask(() => {
      this.#willSend = false;
      this.#send();
    });
  }

  get #someoneWaits(): boolean {
    return this.#visitors.length > 0 || this.#waiting.length > 0;
  }

  #open(): void {
    if (!this.#links.mayOpen) return;
    this.#forgetLate();
    if (this.#someoneWaits) void this.#links.open();
  }

  /** In turns, so that neither many visitors nor many requests keep the others waiting. */
  #leave(link: Link): boolean {
    if (this.#wasVisitLast) return this.#carry(link) || this.#receive(link);
    return this.#receive(link) || this.#carry(link);
  }

  #receive(link: Link): boolean {
    const visitor = this.#visitors.shift();
    if (!visitor) return false;
    this.#wasVisitLast = true;
    this.#use(link, visitor.deadline, (visit) => visitor.receive(visit));
    return true;
  }

  #carry(link: Link): boolean {
    const errands = this.#gather();
    if (errands.length === 0) return false;
    this.#wasVisitLast = false;
    const endsAtMs = errands.reduce((latest, { call }) => Math.max(latest, call.endsAtMs), 0);
    const deadline = new Deadline(endsAtMs - systemClock.monotonicMs());
    for (const errand of errands) this.#keysUnderWay.add(errand);
    this.#use(link, deadline, async (visit) => {
      await this.#parts.carry(errands, visit, (errand) => this.#settle(errand));
      deadline[Symbol.dispose]();
      for (const errand of errands) this.#keysUnderWay.remove(errand);
    });
    return true;
  }

  #settle(errand: Errand): void {
    if (this.#keysUnderWay.remove(errand)) this.#sendSoon();
  }

  #use(link: Link, deadline: Deadline, work: (visit: Visit) => Promise<void>): void {
    const using = work(link.visit(deadline)).then(() => {
      this.#uses.delete(using);
      this.#links.giveBack(link);
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

  /** So that no connection is opened for them. */
  #forgetLate(): void {
    const nowMs = systemClock.monotonicMs();
    for (const { call } of this.#waiting) if (nowMs >= call.endsAtMs) call.end();
    this.#waiting = this.#waiting.filter(({ call }) => !call.isOver);
    this.#visitors = this.#visitors.filter(({ deadline }) => nowMs < deadline.endsAtMs); // Their deadlines tell them.
  }

  #refuse(cause: unknown): void {
    for (const errand of this.#waiting.splice(0)) errand.call.tell(errand, neverSent(cause));
    for (const visitor of this.#visitors.splice(0)) visitor.refuse(cause);
  }
}
