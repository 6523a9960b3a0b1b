import { plainTable } from './plain-table.js';
import type { Findings } from './findings.js';

/** An episode in which something was wrong. */
export interface RedEpisode {
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
  readonly red: RedEpisode[] = [];
  readonly #episodes: Pick<Findings, 'faults' | 'counts'>[] = [];
  #ranMs = 0;

  constructor(readonly backend: string) {}

  add({ faults, counts }: Findings, ranMs: number): void {
    this.#episodes.push({ faults, counts });
    this.#ranMs += ranMs;
  }

  toJSON() {
    return {
      backend: this.backend,
      minutes: this.#ranMs / 60_000,
      episodes: this.#episodes.length,
      faults: this.#faults.length,
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

  get #faults() {
    return this.#episodes.flatMap(({ faults }) => faults);
  }

  #byNemesis() {
    const names = [...new Set(this.#faults.map(({ nemesis }) => nemesis))].sort();
    return names.map((nemesis) => {
      const faults = this.#faults.filter((fault) => fault.nemesis === nemesis);
      const recoveriesMs = faults.map(({ recoveryMs = NaN }) => Math.round(recoveryMs)).sort((a, b) => a - b);
      return {
        nemesis,
        isInsideGuarantee: faults.every(({ isInsideGuarantee }) => isInsideGuarantee),
        count: faults.length,
        medianMs: recoveriesMs[Math.floor(recoveriesMs.length / 2)],
        longestMs: recoveriesMs.at(-1),
      };
    });
  }

  #counts(): Record<string, number> {
    const sums: Record<string, number> = {};
    for (const { counts } of this.#episodes)
      for (const [what, count] of Object.entries(counts)) sums[what] = (sums[what] ?? 0) + count;
    return sums;
  }
}
