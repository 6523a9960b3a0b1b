import type { NodeRequest } from './node-call.js';

/** Something to give back that a server has not confirmed yet. */
export interface Debt {
  readonly request: NodeRequest;
  /** From then on the lease is over in any case. */
  readonly untilMs: number;
  /** What went over a connection that was lost may still arrive until then, and would come after this. */
  readonly dueMs: number;
}

/** A server that is away for long makes no memory grow without end: what is not given back lapses. */
const MOST = 10_000;

/** What one server is to take back as soon as it can be asked. */
export class Debts {
  readonly #owed = new Map<string, Debt>();

  get size(): number {
    return this.#owed.size;
  }

  add(debt: Debt): void {
    const { holder, key } = debt.request;
    this.#owed.set(`${holder} ${key}`, debt);
    if (this.#owed.size <= MOST) return;
    for (const oldest of this.#owed.keys()) {
      this.#owed.delete(oldest);
      break;
    }
  }

  /** Could not be paid; what was owed for the same lock since takes its place. */
  putBack(debt: Debt, dueMs: number): void {
    const { holder, key } = debt.request;
    if (!this.#owed.has(`${holder} ${key}`)) this.add({ ...debt, dueMs });
  }

  /** Those that may be paid now, which then are owed no more. */
  take(nowMs: number, most: number): Debt[] {
    const taken: Debt[] = [];
    for (const [name, debt] of this.#owed) {
      if (taken.length === most) break;
      if (debt.dueMs > nowMs && debt.untilMs > nowMs) continue;
      this.#owed.delete(name);
      if (debt.untilMs > nowMs) taken.push(debt);
    }
    return taken;
  }

  clear(): void {
    this.#owed.clear();
  }
}
