import type { BenchName, Figures } from './bench.js';
import type { Contender, Profile, StoreName } from './contender.js';
import { median } from './statistics.js';

/** What one contender did in one case of one turn. */
export interface Result {
  readonly turn: number;
  readonly bench: BenchName;
  readonly caseName: string;
  readonly store: StoreName;
  readonly contender: string;
  readonly kind: Contender['kind'];
  readonly profile: Profile;
  /** Missing where it failed. */
  readonly figures?: Figures;
  readonly failure?: string;
  /** Errors that it threw where nobody could catch them. */
  readonly uncaughtErrors: readonly string[];
}

/** One line of a table: all turns of it. */
export type Line = Pick<Result, 'bench' | 'caseName' | 'store' | 'contender' | 'kind' | 'profile'>;

/** A figure of a line. */
export interface Cell extends Omit<Line, 'kind'> {
  readonly figure: string;
}

export class Results {
  readonly #results: readonly Result[];

  constructor(results: readonly Result[]) {
    this.#results = results;
  }

  /** In the order in which they were first measured. */
  lines(wanted: Partial<Line>): Line[] {
    const found = new Map<string, Line>();
    for (const result of this.#results) {
      if (!matches(result, wanted)) continue;
      const { bench, caseName, store, contender, kind, profile } = result;
      const line = { bench, caseName, store, contender, kind, profile };
      found.set(JSON.stringify(line), found.get(JSON.stringify(line)) ?? line);
    }
    return [...found.values()];
  }

  /** What was measured in each turn, without the turns that failed. */
  values(cell: Cell): number[] {
    return [...this.#byTurn(cell).values()];
  }

  /** The median over the turns; undefined where nothing was measured. */
  median(cell: Cell): number | undefined {
    const values = this.values(cell);
    return values.length > 0 ? median(values) : undefined;
  }

  /** The median of the ratios inside of the turns, where both were measured. */
  ratio(of: Cell, to: Cell): number | undefined {
    const under = this.#byTurn(to);
    const ratios = [...this.#byTurn(of)]
      .filter(([turn]) => under.has(turn))
      .map(([turn, value]) => value / under.get(turn)!);
    return ratios.length > 0 ? median(ratios) : undefined;
  }

  /** Each failure with how often it happened. */
  failures(line: Line): Map<string, number> {
    return counted(this.#of(line).flatMap(({ failure }) => failure ?? []));
  }

  uncaughtErrors(line: Line): Map<string, number> {
    return counted(this.#of(line).flatMap(({ uncaughtErrors }) => uncaughtErrors));
  }

  #of(line: Partial<Line>): Result[] {
    return this.#results.filter((result) => matches(result, line));
  }

  #byTurn({ figure, ...line }: Cell): Map<number, number> {
    const measured = this.#of(line).map(({ turn, figures }) => [turn, figures?.[figure]] as const);
    return new Map(measured.filter((pair): pair is [number, number] => Number.isFinite(pair[1])));
  }
}

const matches = (result: Result, wanted: Partial<Line>): boolean =>
  Object.entries(wanted).every(([name, value]) => result[name as keyof Line] === value);

function counted(texts: readonly string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1);
  return counts;
}
