import type { Deed, Entered, Told } from './messages.js';

export interface CallSeen {
  readonly worker: number;
  readonly number: number;
  readonly deed: Deed;
  /** Missing while it runs, and for ever if the worker died in it. */
  outcome?: string;
  value?: string | undefined;
}

export interface SectionSeen extends Entered {
  readonly worker: number;
  /** The first and the last instant at which it saw that its lock was valid. */
  validFromMs: number;
  validToMs: number;
  exitedAtMs?: number;
  wasValidAtExit: boolean;
}

export interface ResultSeen {
  readonly worker: number;
  readonly checkpoint: string;
  readonly call?: number;
  /** Of a row. */
  readonly id?: number;
}

/** A request that reached the queue of the leader. */
export interface Arrival {
  readonly worker: number;
  readonly term: bigint;
}

/** What was seen since it was last forgotten. */
export class History {
  calls: CallSeen[] = [];
  sections: SectionSeen[] = [];
  results: ResultSeen[] = [];
  readonly strikes: { readonly worker: number; readonly atMs: number }[] = [];
  readonly #open = new Map<number, Map<number, SectionSeen>>();

  note(worker: number, told: Told): void {
    if ('began' in told) this.calls.push({ worker, number: told.began, deed: told.deed });
    if ('over' in told) this.#endCall(worker, told);
    if ('entered' in told) this.#enter(worker, told.entered);
    if ('valid' in told) {
      const section = this.#openOf(worker).get(told.valid);
      if (section) section.validToMs = told.atMs;
      if (section?.validFromMs === Infinity) section.validFromMs = told.atMs;
    }
    if ('exited' in told) this.#exit(worker, told);
    if ('result' in told) this.results.push({ ...told, worker, checkpoint: told.result });
    if ('reached' in told) this.strikes.push({ worker, atMs: told.atMs });
  }

  /** Forgets what is over; of sections, those that the judges need no more. */
  forget(isNeeded: (section: SectionSeen) => boolean): void {
    this.calls = [];
    this.results = [];
    this.sections = this.sections.filter((section) => isNeeded(section) || isOpen(section));
  }

  forgetWorker(worker: number): void {
    this.#open.delete(worker);
  }

  #endCall(worker: number, { over, outcome, value }: { over: number; outcome: string; value?: string }) {
    const call = this.calls.findLast((one) => one.worker === worker && one.number === over);
    if (call) Object.assign(call, { outcome, value });
  }

  #enter(worker: number, entered: Entered): void {
    const valid = { validFromMs: Infinity, validToMs: -Infinity, wasValidAtExit: false };
    const section = { ...entered, ...valid, worker };
    this.sections.push(section);
    this.#openOf(worker).set(entered.section, section);
  }

  #exit(worker: number, { exited, atMs, isValid }: { exited: number; atMs: number; isValid: boolean }) {
    const section = this.#openOf(worker).get(exited);
    if (section) Object.assign(section, { exitedAtMs: atMs, wasValidAtExit: isValid });
    this.#openOf(worker).delete(exited);
  }

  #openOf(worker: number): Map<number, SectionSeen> {
    const open = this.#open.get(worker) ?? new Map<number, SectionSeen>();
    this.#open.set(worker, open);
    return open;
  }
}

const isOpen = ({ exitedAtMs }: SectionSeen) => exitedAtMs === undefined;
