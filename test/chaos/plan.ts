import type { Nemesis } from './nemesis/nemesis.js';
import { Random } from '../random.js';
import type { World } from './worlds/world.js';

/** What strikes at the same time, each with its own chance. */
export type Round = readonly { readonly nemesis: Nemesis; readonly seed: number }[];

type Counts = Readonly<Record<Nemesis['target'], readonly [number, number]>>;

/** How many of a kind strike in one round, from and to. */
const AT_ONCE: Counts = { process: [1, 3], network: [2, 3], store: [0, 1] };
/** The same for a store that is reached without a network. */
const AT_ONCE_ON_A_FILE: Counts = { process: [3, 4], network: [0, 0], store: [0, 1] };

/** The same seed gives the same plan, on the same kind of world. */
export function planFrom(seed: number, world: World, nemeses: readonly Nemesis[], rounds: number): Round[] {
  const random = new Random(seed);
  const spared = random.pick(['forgets', 'sets the clock back']);
  const fitting = nemeses.filter((nemesis) => nemesis.fits(world) && nemesis.harmsTokens !== spared);
  if (fitting.length === 0) throw new Error(`None of the nemeses can strike ${world.name}.`);
  const atOnce = world.servers.length > 0 ? AT_ONCE : AT_ONCE_ON_A_FILE;
  return Array.from({ length: rounds }, () => {
    const round = Object.entries(atOnce).flatMap(([target, [least, most]]) => {
      const choice = fitting.filter((nemesis) => nemesis.target === target);
      const count = choice.length === 0 ? 0 : random.whole(least, most);
      return Array.from({ length: count }, () => random.pick(choice));
    });
    const struck = round.length > 0 ? round : [random.pick(fitting)];
    return struck.map((nemesis) => ({ nemesis, seed: random.seed() }));
  });
}

export const shown = (plan: readonly Round[]): string =>
  plan
    .map((round, index) => `  ${index + 1}. ${round.map(({ nemesis }) => nemesis.name).join(' + ')}`)
    .join('\n');
