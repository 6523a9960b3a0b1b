import { type Timer, systemClock } from '../../../core/clock.js';
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
    const debts = this.#creditor.canBeAsked ? this.#take(systemClock.monotonicMs()) : [];
    if (debts.length > 0) {
      const call = new NodeCall(debts.map(({ request }) => request));
      this.#creditor.ask(call, Infinity, { heard: () => undefined, failed: () => this.#putBack(debts) });
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
    this.#add(known && known.dueMs > debt.dueMs ? { ...debt, dueMs: known.dueMs } : debt);
  }

  #add(debt: Debt): void {
    addTo(this.#owed, { key: nameOf(debt), value: debt, most: MOST });
  }

  /** Those that may be paid now, which then are owed no more. */
  #take(nowMs: number): readonly Debt[] {
    const taken: Debt[] = [];
    // No key stands twice in one call.
    const keys = new Set<string>();
    for (const [name, debt] of this.#owed) {
      if (taken.length === MOST_AT_ONCE) break;
      const { key } = debt.request;
      if ((debt.dueMs > nowMs && debt.untilMs > nowMs) || keys.has(key)) continue;
      this.#owed.delete(name);
      if (debt.untilMs <= nowMs) continue;
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
