import { sentenceOf } from './plans.js';
import type { RoundOutcome } from './trial.js';

/** What came out of all rounds of a recipe on a store. */
export class Tally {
  readonly #checkpoints: readonly string[];
  readonly #reached = new Set<string>();
  readonly findings: string[] = [];
  readonly sums = {
    rounds: 0,
    stops: 0,
    kills: 0,
    takenOver: 0,
    effects: 0,
    lostUpdates: 0,
    doubleEffects: 0,
  };

  constructor(
    readonly store: string,
    readonly recipe: string,
    checkpoints: readonly string[],
  ) {
    this.#checkpoints = checkpoints;
  }

  add(outcome: RoundOutcome): void {
    const { sums } = this;
    sums.rounds += 1;
    sums.stops += outcome.stops;
    sums.kills += outcome.kills;
    sums.takenOver += outcome.wereOthersSeen ? 1 : 0;
    sums.effects += outcome.effects;
    sums.lostUpdates += outcome.lostUpdates;
    sums.doubleEffects += outcome.doubleEffects;
    if (outcome.wasReached) this.#reached.add(outcome.at);
    this.findings.push(...outcome.findings.map((finding) => `${sentenceOf(outcome)}: ${finding}`));
  }

  /** Checkpoints at which nobody has been struck. */
  get missed(): readonly string[] {
    return this.#checkpoints.filter((name) => !this.#reached.has(name));
  }

  get row(): readonly (string | number)[] {
    const { rounds, stops, kills, takenOver, effects, lostUpdates, doubleEffects } = this.sums;
    return [
      ...[this.store, this.recipe, rounds, stops, kills, takenOver],
      `${this.#checkpoints.length - this.missed.length} of ${this.#checkpoints.length}`,
      ...[effects, lostUpdates, doubleEffects, this.findings.length],
    ];
  }

  static readonly head = [
    ...['store', 'recipe', 'rounds', 'stops', 'kills', 'taken over', 'checkpoints'],
    ...['effects', 'lost updates', 'double effects', 'findings'],
  ];
}
