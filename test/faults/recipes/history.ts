import type { CallDetails, SectionEntry, WorkerMessage } from './messages.js';

export interface CallRecord {
  readonly worker: number;
  readonly number: number;
  readonly details: CallDetails;
  /** Missing while it runs, and for ever if the worker died in it. */
  outcome?: string;
  value?: string | undefined;
}

export interface SectionRecord extends SectionEntry {
  readonly worker: number;
  /** The first and the last instant at which it saw that its lock was valid. */
  validFromMs: number;
  validToMs: number;
  exitedAtMs?: number;
  wasValidAtExit: boolean;
}

export interface ResultRecord {
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
  calls: CallRecord[] = [];
  sections: SectionRecord[] = [];
  results: ResultRecord[] = [];
  readonly faults: { readonly worker: number; readonly atMs: number }[] = [];
  readonly #open = new Map<number, Map<number, SectionRecord>>();

  record(worker: number, message: WorkerMessage): void {
    if ('began' in message) this.calls.push({ worker, number: message.began, details: message.details });
    if ('over' in message) this.#endCall(worker, message);
    if ('entered' in message) this.#enter(worker, message.entered);
    if ('valid' in message) {
      const section = this.#openOf(worker).get(message.valid);
      if (section) section.validToMs = message.atMs;
      if (section?.validFromMs === Infinity) section.validFromMs = message.atMs;
    }
    if ('exited' in message) this.#exit(worker, message);
    if ('result' in message) this.results.push({ ...message, worker, checkpoint: message.result });
    if ('reached' in message) this.faults.push({ worker, atMs: message.atMs });
  }

  /** Forgets what is over; of sections, those that the judges need no more. */
  dropFinished(isNeeded: (section: SectionRecord) => boolean): void {
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

  #enter(worker: number, entered: SectionEntry): void {
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

  #openOf(worker: number): Map<number, SectionRecord> {
    const open = this.#open.get(worker) ?? new Map<number, SectionRecord>();
    this.#open.set(worker, open);
    return open;
  }
}

const isOpen = ({ exitedAtMs }: SectionRecord) => exitedAtMs === undefined;
