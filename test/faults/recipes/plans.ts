import type { Plan } from './trial.js';

/** One round for each checkpoint: whoever is stopped there meets another one at the same line. */
const meetings = (checkpoints: readonly string[]): Plan[] =>
  checkpoints.map((at) => ({ at, fault: 'stop', meetAt: at }));

const takeovers = (checkpoints: readonly string[]): Plan[] =>
  checkpoints.map((at) => ({ at, fault: 'stop' }));

const kills = (checkpoints: readonly string[]): Plan[] => checkpoints.map((at) => ({ at, fault: 'kill' }));

/**
 * Each checkpoint with each kind of round, then pairs of checkpoints by chance, without end. The kinds take turns, so that a
 * run which ends early has had all of them.
 */
export function* allPlans(checkpoints: readonly string[]): Generator<Plan> {
  const kinds = [meetings, takeovers, kills].map((plansOf) => plansOf(checkpoints));
  for (const shift of kinds.keys()) {
    yield* checkpoints.map((_, index) => kinds[(index + shift) % kinds.length]![index]!);
  }
  for (;;) {
    const [at, meetAt] = [oneOf(checkpoints), oneOf(checkpoints)];
    yield oneOf<Plan>([
      { at, fault: 'stop', meetAt },
      { at, fault: 'stop' },
      { at, fault: 'kill' },
      { at, fault: 'kill', meetAt },
    ]);
  }
}

export const sentenceOf = ({ fault, at, meetAt }: Plan): string =>
  `${fault} at ${at}${meetAt === undefined ? '' : `, others at ${meetAt}`}`;

const oneOf = <Item>(items: readonly Item[]): Item => items[Math.floor(Math.random() * items.length)]!;
