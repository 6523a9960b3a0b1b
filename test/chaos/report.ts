import Table from 'cli-table3';
import type { Findings, Violation } from './findings.js';

const PLAIN = { style: { head: [], border: [], compact: true } };

/** What happened to one kind of store, over all episodes. */
export class Report {
  readonly #all: Findings[] = [];
  #ranMs = 0;

  constructor(readonly backend: string) {}

  add(findings: Findings, ranMs: number): void {
    this.#all.push(findings);
    this.#ranMs += ranMs;
  }

  get violations(): readonly Violation[] {
    return this.#all.flatMap(({ violations }) => violations);
  }

  get faults(): number {
    return this.#strikes.length;
  }

  toJSON() {
    return {
      backend: this.backend,
      minutes: this.#ranMs / 60_000,
      episodes: this.#all.length,
      faults: this.faults,
      nemeses: this.#byNemesis(),
      counts: this.#counts(),
      violations: this.violations,
    };
  }

  toString(): string {
    const strikes = new Table({
      head: ['nemesis', 'inside the guarantee', 'strikes', 'recovery, ms: median', 'longest'],
      ...PLAIN,
    });
    for (const { nemesis, isInsideGuarantee, count, medianMs, longestMs } of this.#byNemesis())
      strikes.push([nemesis, isInsideGuarantee ? 'yes' : 'no', count, medianMs, longestMs]);
    const counts = new Table(PLAIN);
    for (const [what, count] of Object.entries(this.#counts())) counts.push([what, count]);
    const minutes = (this.#ranMs / 60_000).toFixed(1);
    const title = `== ${this.backend}: ${this.faults} faults in ${minutes} min, ${this.#all.length} episodes`;
    return [title, strikes.toString(), counts.toString()].join('\n');
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
