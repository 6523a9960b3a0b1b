import { readFileSync } from 'node:fs';

/** One of the two lists of each key: the fenced one looks at fencing tokens, the other takes everything. */
export type ListName = 'fenced' | 'unfenced';

/** What a worker writes down while it works. All times are those of the one clock of the machine, in ms. */
export type Line = { readonly atMs: number; readonly op: string } & (
  | { readonly type: 'asked'; readonly key: string; readonly leaseMs: number; readonly waitMs: number }
  | { readonly type: 'granted'; readonly fencingToken: string; readonly untilMs: number }
  | { readonly type: 'renewed'; readonly untilMs: number; readonly leaseMs: number }
  /** `isValid()` said so, at this time or later. */
  | { readonly type: 'valid' }
  | { readonly type: 'refused'; readonly why: string }
  | { readonly type: 'lost' }
  | { readonly type: 'releasing' }
  /** `unknown`: nobody waited for the answer, or there was none. */
  | { readonly type: 'released'; readonly answer: 'ours' | 'gone' | 'unknown' }
  /** The list acknowledged what was added to it under the lock. */
  | { readonly type: 'added'; readonly list: ListName; readonly item: string }
);

/** One process, from its start to its end. */
export interface Life {
  readonly worker: string;
  /** When the harness ended it, as far as it did not end by itself. */
  readonly killedAtMs?: number | undefined;
  /** When its application was told to close, if that was while things went wrong. */
  readonly closedAtMs?: number | undefined;
  readonly lines: readonly Line[];
}

/** One wish for a lock, and what became of it. */
export interface Ask {
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
  readonly seenValidAtMs: number;
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
  seenValidAtMs,
  releasingAtMs = Infinity,
  lostAtMs = Infinity,
  killedAtMs = Infinity,
}: Hold): number => Math.max(seenValidAtMs, Math.min(untilMs, releasingAtMs, lostAtMs, killedAtMs));

/** Reads what a process wrote; one that was killed may have written half of its last line. */
export function linesOf(file: string): Line[] {
  const lines = readFileSync(file, 'utf8').split('\n');
  lines.pop();
  return lines.map((line) => JSON.parse(line) as Line);
}

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };

/** Puts the lines of each wish together. */
export function asksOf(lives: readonly Life[]): Ask[] {
  return lives.flatMap((life) => {
    const asks = new Map<string, Mutable<Ask>>();
    for (const line of life.lines) tell(asks, line, life);
    return [...asks.values()];
  });
}

export const holdsOf = (asks: readonly Ask[]): Hold[] => asks.flatMap(({ hold }) => hold ?? []);

function tell(asks: Map<string, Mutable<Ask>>, line: Line, { worker, killedAtMs, closedAtMs }: Life): void {
  const { op, atMs } = line;
  if (line.type === 'asked') {
    const { key, leaseMs, waitMs } = line;
    asks.set(op, { op, worker, key, leaseMs, waitMs, askedAtMs: atMs, killedAtMs, closedAtMs });
    return;
  }
  const ask = asks.get(op);
  if (!ask) throw new Error(`${worker} tells of ${op}, which nobody asked for.`);
  if (line.type === 'granted' || line.type === 'refused') ask.answeredAtMs = atMs;
  if (line.type === 'refused') ask.refused = line.why;
  if (line.type === 'granted') {
    const { fencingToken, untilMs } = line;
    const { key, leaseMs, askedAtMs } = ask;
    const told = { fencingToken: BigInt(fencingToken), untilMs, seenValidAtMs: -Infinity };
    const added = { fenced: [], unfenced: [] };
    ask.hold = { op, worker, key, leaseMs, askedAtMs, fromMs: atMs, killedAtMs, ...told, added };
  } else if (ask.hold) tellHold(ask.hold, line);
}

function tellHold(hold: Mutable<Hold>, line: Line): void {
  const { atMs } = line;
  switch (line.type) {
    case 'renewed':
      hold.untilMs = Math.max(hold.untilMs, line.untilMs);
      hold.leaseMs = Math.max(hold.leaseMs, line.leaseMs);
      break;
    case 'valid':
      hold.seenValidAtMs = atMs;
      break;
    case 'lost':
      hold.lostAtMs ??= atMs;
      break;
    case 'releasing':
      hold.releasingAtMs = atMs;
      break;
    case 'released':
      hold.releasedAtMs = atMs;
      hold.released = line.answer;
      break;
    case 'added':
      hold.added = { ...hold.added, [line.list]: [...hold.added[line.list], line.item] };
      break;
    default:
  }
}

export const byKey = <T extends { readonly key: string }>(all: readonly T[]): Map<string, T[]> => {
  const groups = new Map<string, T[]>();
  for (const one of all) {
    const group = groups.get(one.key);
    if (group) group.push(one);
    else groups.set(one.key, [one]);
  }
  return groups;
};
