import { type Timer, systemClock } from '../../../core/clock.js';
import { queueMicrotask } from '../../../core/real-time.js';
import { addTo } from './bounded.js';
import { LONGEST_CALL_MS, NodeCall, type NodeRequest } from './node-call.js';

/** Something to give back that a server has not confirmed yet. */
interface Debt {
  readonly request: NodeRequest;
  /** From then on the lease is over in any case. */
  readonly untilMs: number;
  /** What went over a connection that was lost may still arrive until then, and would come after this. */
  readonly dueMs: number;
}

/** Whom it is owed to. */
interface Creditor {
  readonly canBeAsked: boolean;
  /** `failed`: nobody knows what became of the call. */
  ask(call: NodeCall, untilMs: number, hearer: { heard(): void; failed(): void }): boolean;
}

/** A server that is away for long makes no memory grow without end: what is not given back lapses. */
const MOST = 10_000;
const MOST_AT_ONCE = 200;
const PAUSE_MS = 250;

/** What one server is to take back as soon as it can be asked. */
export class Debts {
  readonly #creditor: Creditor;
  readonly #maxLeaseMs: number;
  readonly #owed = new Map<string, Debt>();
  #isPaying = false;
  #later: Timer | undefined;

  constructor(creditor: Creditor, maxLeaseMs: number) {
    this.#creditor = creditor;
    this.#maxLeaseMs = maxLeaseMs;
  }

  /** It is to be given back now, or as soon as the server can be asked. */
  owe(request: NodeRequest): void {
    this.#owe(request, 0);
    if (this.#isPaying) return;
    this.#isPaying = true;
    // Together with all else that this turn gives back.
    queueMicrotask(() => this.pay());
  }

  /** The same for what was to go over a connection that was lost. */
  oweLater(request: NodeRequest): void {
    this.#owe(request, LONGEST_CALL_MS);
    this.#payLater();
  }

  /** The server may be there (again). */
  pay(): void {
    this.#isPaying = false;
    const debts = this.#take(this.#creditor.canBeAsked ? MOST_AT_ONCE : 0);
    if (debts.length > 0) {
      const call = new NodeCall(debts.map(({ request }) => request));
      this.#creditor.ask(call, Infinity, { heard: () => this.pay(), failed: () => this.#putBack(debts) });
    }
    this.#payLater();
  }

  close(): void {
    this.#later?.cancel();
    this.#later = undefined;
    this.#owed.clear();
  }

  #owe(request: NodeRequest, delayMs: number): void {
    const nowMs = systemClock.monotonicMs();
    const debt = { request, dueMs: nowMs + delayMs, untilMs: nowMs + this.#maxLeaseMs };
    const known = this.#owed.get(nameOf(debt));
    this.#add(known ? together(known, debt) : debt);
  }

  #add(debt: Debt): void {
    addTo(this.#owed, { key: nameOf(debt), value: debt, most: MOST });
  }

  /** So many of those that may be paid now, which then are owed no more. */
  #take(most: number): readonly Debt[] {
    const nowMs = systemClock.monotonicMs();
    const taken: Debt[] = [];
    // No key stands twice in one call.
    const keys = new Set<string>();
    for (const [name, debt] of this.#owed) {
      const { key } = debt.request;
      const hasLapsed = debt.untilMs <= nowMs;
      if (!hasLapsed && (debt.dueMs > nowMs || keys.has(key) || taken.length === most)) continue;
      this.#owed.delete(name);
      if (hasLapsed) continue;
      keys.add(key);
      taken.push(debt);
    }
    return taken;
  }

  /** They could not be paid; what was owed for the same lock since takes their place. */
  #putBack(debts: readonly Debt[]): void {
    const dueMs = systemClock.monotonicMs() + LONGEST_CALL_MS;
    for (const debt of debts) if (!this.#owed.has(nameOf(debt))) this.#add({ ...debt, dueMs });
    this.#payLater();
  }

  #payLater(): void {
    if (this.#later || this.#owed.size === 0) return;
    this.#later = systemClock.after(PAUSE_MS, () => {
      this.#later = undefined;
      this.pay();
    });
  }
}

const nameOf = ({ request: { key, holder } }: Debt) => `${holder} ${key}`;

/** Of two for one lock: the one that goes further, when neither comes too early. */
function together(known: Debt, newer: Debt): Debt {
  const { request } = reachOf(known) > reachOf(newer) ? known : newer;
  return { ...newer, request, dueMs: Math.max(known.dueMs, newer.dueMs) };
}

/** A vote is given back for one question, a lock for all of them; the end of a run is noted besides. */
const REACHES = ['yield', 'release', 'finish'];
const reachOf = ({ request: { terms } }: Debt) =>
  REACHES.findIndex((verb) => typeof terms === 'string' && terms.startsWith(verb));
