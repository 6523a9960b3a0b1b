import { plainTable } from './plain-table.js';
import type { Findings } from './findings.js';

/** An episode in which something was wrong. */
export interface Red {
  readonly backend: string;
  readonly seed: number;
  readonly what: readonly string[];
  /** Plays it again. */
  readonly command: string;
  /** Where the diaries are. */
  readonly folder?: string | undefined;
}

/** What happened to one kind of store, over all episodes, as it goes to a file. */
export type Tally = ReturnType<Report['toJSON']>;

/** Adds up what happened to one kind of store. */
export class Report {
  readonly red: Red[] = [];
  readonly #all: Pick<Findings, 'strikes' | 'counts'>[] = [];
  #ranMs = 0;

  constructor(readonly backend: string) {}

  add({ strikes, counts }: Findings, ranMs: number): void {
    this.#all.push({ strikes, counts });
    this.#ranMs += ranMs;
  }

  toJSON() {
    return {
      backend: this.backend,
      minutes: this.#ranMs / 60_000,
      episodes: this.#all.length,
      faults: this.#strikes.length,
      nemeses: this.#byNemesis(),
      counts: this.#counts(),
      red: this.red,
    };
  }

  toString(): string {
    const { backend, minutes, episodes, faults, nemeses, counts } = this.toJSON();
    return [
      `== ${backend}: ${faults} faults in ${minutes.toFixed(1)} min, ${episodes} episodes`,
      plainTable(
        nemeses.map((one) => [
          one.nemesis,
          one.isInsideGuarantee ? 'yes' : 'no',
          one.count,
          one.medianMs,
          one.longestMs,
        ]),
        ['nemesis', 'inside the guarantee', 'strikes', 'recovery, ms: median', 'longest'],
      ),
      plainTable(Object.entries(counts)),
    ].join('\n');
  }

  get #strikes() {
    return this.#all.flatMap(({ strikes }) => strikes);
  }

  #byNemesis() {
    const names = [...new Set(this.#strikes.map(({ nemesis }) => nemesis))].sort();
    return names.map((nemesis) => {
      const strikes = this.#strikes.filter((strike) => strike.nemesis === nemesis);
      const recoveriesMs = strikes
        .map(({ recoveryMs = NaN }) => Math.round(recoveryMs))
        .sort((a, b) => a - b);
      return {
        nemesis,
        isInsideGuarantee: strikes.every(({ isInsideGuarantee }) => isInsideGuarantee),
        count: strikes.length,
        medianMs: recoveriesMs[Math.floor(recoveriesMs.length / 2)],
        longestMs: recoveriesMs.at(-1),
      };
    });
  }

  #counts(): Record<string, number> {
    const sums: Record<string, number> = {};
    for (const { counts } of this.#all)
      for (const [what, count] of Object.entries(counts)) sums[what] = (sums[what] ?? 0) + count;
    return sums;
  }
}
