import { readFileSync } from 'node:fs';

/** One of the two lists of each key: the fenced one looks at fencing tokens, the other takes everything. */
export type ListName = 'fenced' | 'unfenced';

/** What a worker writes down while it works. All times are those of the one clock of the machine, in ms. */
export type LogEntry = { readonly atMs: number; readonly op: string } & (
  | { readonly type: 'asked'; readonly key: string; readonly leaseMs: number; readonly waitMs: number }
  | { readonly type: 'granted'; readonly fencingToken: string; readonly untilMs: number }
  | { readonly type: 'renewed'; readonly untilMs: number; readonly leaseMs: number }
  /** `isValid()` said so, at this time or later. */
  | { readonly type: 'valid' }
  | { readonly type: 'refused'; readonly why: string }
  | { readonly type: 'lost' }
  | { readonly type: 'releasing' }
  /** `unknown`: nobody waited for the answer, or there was none. */
  | { readonly type: 'released'; readonly result: 'ours' | 'gone' | 'unknown' }
  /** The list acknowledged what was added to it under the lock. */
  | { readonly type: 'added'; readonly list: ListName; readonly item: string }
);

/** One process, from its start to its end. */
export interface ProcessHistory {
  readonly worker: string;
  /** When the harness ended it, as far as it did not end by itself. */
  readonly killedAtMs?: number | undefined;
  /** When its application was told to close, if that was while things went wrong. */
  readonly closedAtMs?: number | undefined;
  readonly entries: readonly LogEntry[];
}

/** One wish for a lock, and what became of it. */
export interface Acquisition {
  readonly op: string;
  readonly worker: string;
  readonly key: string;
  readonly leaseMs: number;
  readonly waitMs: number;
  readonly askedAtMs: number;
  /** When it was answered; undefined: never. */
  readonly answeredAtMs?: number | undefined;
  /** Why it was not granted. */
  readonly refused?: string | undefined;
  readonly hold?: Hold | undefined;
  readonly killedAtMs?: number | undefined;
  readonly closedAtMs?: number | undefined;
}

/** A lock in the hands of a worker. */
export interface Hold {
  readonly op: string;
  readonly worker: string;
  readonly key: string;
  readonly fencingToken: bigint;
  /** The longest that it was asked for with. */
  readonly leaseMs: number;
  readonly askedAtMs: number;
  readonly fromMs: number;
  /** Until when it was valid by itself, as far as the worker wrote it down. */
  readonly untilMs: number;
  /** The last time at which `isValid()` was seen to say yes. */
  readonly lastValidAtMs: number;
  readonly lostAtMs?: number | undefined;
  readonly releasingAtMs?: number | undefined;
  readonly releasedAtMs?: number | undefined;
  readonly released?: 'ours' | 'gone' | 'unknown' | undefined;
  readonly added: Readonly<Record<ListName, readonly string[]>>;
  readonly killedAtMs?: number | undefined;
}

/**
 * The end of the time in which a holder may believe that the lock is his: given back, run out or lost, whichever came
 * first; but not before `isValid()` last said yes.
 */
export const endOf = ({
  untilMs,
  lastValidAtMs,
  releasingAtMs = Infinity,
  lostAtMs = Infinity,
  killedAtMs = Infinity,
}: Hold): number => Math.max(lastValidAtMs, Math.min(untilMs, releasingAtMs, lostAtMs, killedAtMs));

/** Reads what a process wrote; one that was killed may have written half of its last line. */
export function readLog(file: string): LogEntry[] {
  const texts = readFileSync(file, 'utf8').split('\n');
  texts.pop();
  return texts.map((text) => JSON.parse(text) as LogEntry);
}

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };

/** Puts the lines of each wish together. */
export function acquisitionsOf(histories: readonly ProcessHistory[]): Acquisition[] {
  return histories.flatMap((history) => {
    const acquisitions = new Map<string, Mutable<Acquisition>>();
    for (const entry of history.entries) applyEntry(acquisitions, entry, history);
    return [...acquisitions.values()];
  });
}

export const holdsOf = (acquisitions: readonly Acquisition[]): Hold[] =>
  acquisitions.flatMap(({ hold }) => hold ?? []);

function applyEntry(
  acquisitions: Map<string, Mutable<Acquisition>>,
  entry: LogEntry,
  { worker, killedAtMs, closedAtMs }: ProcessHistory,
): void {
  const { op, atMs } = entry;
  if (entry.type === 'asked') {
    const { key, leaseMs, waitMs } = entry;
    acquisitions.set(op, { op, worker, key, leaseMs, waitMs, askedAtMs: atMs, killedAtMs, closedAtMs });
    return;
  }
  const acquisition = acquisitions.get(op);
  if (!acquisition) throw new Error(`${worker} tells of ${op}, which nobody asked for.`);
  if (entry.type === 'granted' || entry.type === 'refused') acquisition.answeredAtMs = atMs;
  if (entry.type === 'refused') acquisition.refused = entry.why;
  if (entry.type === 'granted') {
    const { fencingToken, untilMs } = entry;
    const { key, leaseMs, askedAtMs } = acquisition;
    const grantFields = { fencingToken: BigInt(fencingToken), untilMs, lastValidAtMs: -Infinity };
    const added = { fenced: [], unfenced: [] };
    acquisition.hold = {
      op,
      worker,
      key,
      leaseMs,
      askedAtMs,
      fromMs: atMs,
      killedAtMs,
      ...grantFields,
      added,
    };
  } else if (acquisition.hold) applyToHold(acquisition.hold, entry);
}

function applyToHold(hold: Mutable<Hold>, entry: LogEntry): void {
  const { atMs } = entry;
  switch (entry.type) {
    case 'renewed':
      hold.untilMs = Math.max(hold.untilMs, entry.untilMs);
      hold.leaseMs = Math.max(hold.leaseMs, entry.leaseMs);
      break;
    case 'valid':
      hold.lastValidAtMs = atMs;
      break;
    case 'lost':
      hold.lostAtMs ??= atMs;
      break;
    case 'releasing':
      hold.releasingAtMs = atMs;
      break;
    case 'released':
      hold.releasedAtMs = atMs;
      hold.released = entry.result;
      break;
    case 'added':
      hold.added = { ...hold.added, [entry.list]: [...hold.added[entry.list], entry.item] };
      break;
    default:
  }
}

export const groupByKey = <T extends { readonly key: string }>(all: readonly T[]): Map<string, T[]> => {
  const groups = new Map<string, T[]>();
  for (const one of all) {
    const group = groups.get(one.key);
    if (group) group.push(one);
    else groups.set(one.key, [one]);
  }
  return groups;
};
