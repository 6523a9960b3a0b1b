import type { Store } from '../../support/stores.js';

export type FaultKind = 'stop' | 'kill';

/** Where the data of a recipe are. */
export type Resource =
  | { readonly database: Store; readonly prefix: string }
  | { readonly redis: string; readonly prefix: string }
  | null;

/** What a worker gets on its command line. */
export interface WorkerTask {
  readonly role: 'worker' | 'observer';
  /** The instrumented recipe, as JavaScript. */
  readonly module: string;
  /** The class or the function that is the recipe. */
  readonly declares: string;
  readonly driver: DriverName;
  readonly locks: Store;
  readonly resource: Resource;
  readonly namespace: string;
  readonly leaseMs: number;
  readonly waitMs: number;
  readonly elections: readonly string[];
  /** Takes the place of `https://queue.example`. */
  readonly queueUrl: string;
}

export type DriverName = 'locking' | 'fenced-write' | 'task-claim' | 'job' | 'leader';

/** What a worker is told while it runs. */
export type Command =
  /** The next call is part of this round. */
  | { readonly round: number }
  | { readonly pause: true }
  /** Stop, or die, at this checkpoint, once. */
  | { readonly arm: { readonly at: string; readonly fault: FaultKind } }
  | { readonly disarm: true }
  /** For an observer: send what the store has. */
  | { readonly read: number }
  | { readonly close: true };

/** What the outside of a call shows of it. */
export interface CallDetails {
  readonly amount?: number;
  readonly nudged?: number;
}

export interface SectionEntry {
  readonly section: number;
  readonly path: string;
  readonly atMs: number;
  /** Of the lock under which it runs, if there is one. */
  readonly key?: string;
  readonly token?: string;
  /** Of a job. */
  readonly tickMs?: number;
  readonly attempt?: number;
  readonly call?: number;
}

/** What a worker tells. Times are those of the one monotonic clock of the machine. */
export type WorkerMessage =
  | { readonly ready: true }
  | { readonly idle: true }
  | { readonly began: number; readonly details: CallDetails }
  | { readonly over: number; readonly outcome: string; readonly value?: string }
  | { readonly entered: SectionEntry }
  /** The last instant at which the section saw that its lock was valid. */
  | { readonly valid: number; readonly atMs: number }
  | { readonly exited: number; readonly atMs: number; readonly isValid: boolean }
  /** An awaited call within the recipe resolved with something other than `false`; the id is that of a row. */
  | { readonly result: string; readonly call?: number; readonly id?: number }
  | { readonly reached: string; readonly fault: FaultKind; readonly atMs: number }
  | { readonly woke: string; readonly atMs: number }
  | { readonly contents: unknown };
