import type { Nemesis } from './nemesis/nemesis.js';
import { Random } from '../../support/random.js';
import type { StoreUnderTest } from './stores/store-under-test.js';

/** What strikes at the same time, each with its own chance. */
export type Round = readonly { readonly nemesis: Nemesis; readonly seed: number }[];

type Counts = Readonly<Record<Nemesis['target'], readonly [number, number]>>;

/** How many of a kind strike in one round, from and to. */
const AT_ONCE: Counts = { process: [1, 3], network: [2, 3], store: [0, 1] };
/** The same for a store that is reached without a network. */
const AT_ONCE_ON_A_FILE: Counts = { process: [3, 4], network: [0, 0], store: [0, 1] };

/** The same seed gives the same plan, on the same kind of world. */
export function createPlan(
  seed: number,
  store: StoreUnderTest,
  nemeses: readonly Nemesis[],
  rounds: number,
): Round[] {
  const random = new Random(seed);
  const excludedHarm = random.pick(['forgets', 'sets the clock back']);
  const fitting = nemeses.filter(
    (nemesis) => nemesis.appliesTo(store) && nemesis.harmsTokens !== excludedHarm,
  );
  if (fitting.length === 0) throw new Error(`None of the nemeses can strike ${store.name}.`);
  const atOnce = store.servers.length > 0 ? AT_ONCE : AT_ONCE_ON_A_FILE;
  return Array.from({ length: rounds }, () => {
    const round = Object.entries(atOnce).flatMap(([target, [least, most]]) => {
      const choice = fitting.filter((nemesis) => nemesis.target === target);
      const count = choice.length === 0 ? 0 : random.whole(least, most);
      return Array.from({ length: count }, () => random.pick(choice));
    });
    const chosen = round.length > 0 ? round : [random.pick(fitting)];
    return chosen.map((nemesis) => ({ nemesis, seed: random.seed() }));
  });
}

export const formatPlan = (plan: readonly Round[]): string =>
  plan
    .map((round, index) => `  ${index + 1}. ${round.map(({ nemesis }) => nemesis.name).join(' + ')}`)
    .join('\n');
