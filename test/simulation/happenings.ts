import type { Random } from '../random.js';
import type { Troubles } from './sim-link.js';
import type { Member, World } from './world.js';

type Happening = (world: World) => void;

/** So many processes there may ever be. */
const MOST_PROCESSES = 5;
/** Shorter sleeps are below what two clocks are compared by. */
const SHORTEST_SLEEP_MS = 1_150;

const someone = ({ members, random }: World): Member | undefined => {
  const there = members.filter(({ process, callers }) => process.isAwake && !callers.isShutDown);
  return there.length > 0 ? random.pick(there) : undefined;
};

const byCaller = (
  what: 'acquire' | 'tryAcquire' | 'abort' | 'endWork' | 'extend' | 'release' | 'forceRelease',
) =>
  ((world) => {
    const member = someone(world);
    world.log(`${member?.process.name ?? 'nobody'} ${what}`);
    member?.callers[what]();
  }) satisfies Happening;

const several: Happening = (world) => {
  const member = someone(world);
  for (let count = world.random.whole(2, 6); count > 0; count -= 1) member?.callers.acquire();
};

const stop: Happening = (world) => {
  const { random, terms } = world;
  const member = someone(world);
  const leaseMs = random.pick(terms.leasesMs);
  const forMs = Math.min(
    random.pick([random.between(1, 50), leaseMs / 2, leaseMs * random.between(0.9, 2.5)]),
    6_000,
  );
  world.log(`${member?.process.name ?? 'nobody'} stands still for ${forMs}`);
  member?.process.stop(forMs);
};

const sleep: Happening = (world) => {
  const member = someone(world);
  const forMs = SHORTEST_SLEEP_MS + world.random.between(0, 1) ** 2 * 5_000;
  world.log(`${member?.process.name ?? 'nobody'} sleeps for ${forMs}`);
  member?.process.sleep(forMs);
};

const setWall: Happening = (world) => {
  const { random } = world;
  const ms = random.pick([-1, 1]) * random.pick([100, 900, 1_500, 60_000, 86_400_000]);
  const member = someone(world);
  world.log(`${member?.process.name ?? 'nobody'} sets its clock by ${ms}`);
  member?.process.clock.setWallBy(ms);
};

const crash: Happening = (world) => {
  const { members, random } = world;
  if (members.filter(({ process }) => !process.isDead).length < 2) return;
  const member = random.pick(members);
  world.log(`${member.process.name} crashes`);
  member.process.crash();
};

const start: Happening = (world) => {
  if (world.members.length < MOST_PROCESSES) world.start();
};

const shutDown: Happening = (world) => {
  const member = someone(world);
  if (!member) return;
  world.log(`${member.process.name} shuts down`);
  world.awaitRealTurns();
  member.callers.shutDown();
};

const cutLink: Happening = (world) => {
  const { random, timeline } = world;
  const { link, process } = random.pick(world.members);
  const forMs = random.pick([20, 300, 2_500, 7_000]);
  link.state = random.pick(['refused', 'silent']);
  world.log(`${process.name} is cut off, ${link.state}, for ${forMs}`);
  timeline.in(forMs, () => {
    link.state = 'up';
    link.call({});
  });
};

const stallStore: Happening = ({ random, timeline, store, log }) => {
  store.slowMs = random.pick([10, 300, 1_500]);
  log(`the store takes ${store.slowMs}`);
  timeline.in(random.pick([100, 3_000]), () => (store.slowMs = 0));
};

const stopStore: Happening = ({ random, timeline, store, log }) => {
  store.isDown = true;
  log('the store goes down');
  timeline.in(random.pick([20, 500, 4_000]), () => (store.isDown = false));
};

const forget: Happening = ({ random, timeline, store, witness, log }) => {
  store.isDown = true;
  timeline.in(random.between(20, 300), () => {
    store.isDown = false;
    store.forget();
    witness.forgot();
    log('the store has forgotten everything');
  });
};

/** Troubles of which each schedule has some and not the others, so that none hides another. */
const KINDS: readonly (readonly Happening[])[] = [
  [stop, stop],
  [crash, start],
  [shutDown, start],
  [cutLink],
  [stallStore],
  [stopStore],
  [forget],
  [byCaller('forceRelease')],
];

/** What may happen in a schedule, as often as it stands there. */
export function someHappenings(random: Random, isCalm: boolean): readonly Happening[] {
  const usual: Happening[] = [
    ...Array<Happening>(random.whole(3, 10)).fill(byCaller('acquire')),
    ...Array<Happening>(random.whole(0, 4)).fill(byCaller('tryAcquire')),
    ...Array<Happening>(random.whole(0, 2)).fill(several),
    ...Array<Happening>(random.whole(1, 5)).fill(byCaller('release')),
    ...Array<Happening>(random.whole(1, 3)).fill(byCaller('endWork')),
    ...Array<Happening>(random.whole(0, 2)).fill(byCaller('extend')),
    ...Array<Happening>(random.whole(0, 2)).fill(byCaller('abort')),
  ];
  if (isCalm) return usual;
  const troubles = KINDS.filter(() => random.chance(0.35)).flat();
  const clocks = random.pick([[], [], [sleep], [setWall]]);
  return [...usual, ...troubles, ...clocks];
}

/** What befalls messages on their way. */
export function someTroubles(random: Random): Troubles {
  const some = (most: number) => (random.chance(0.35) ? random.between(0, most) : 0);
  return {
    loseRequest: some(0.3),
    loseAnswer: some(0.3),
    repeat: some(0.3),
    delay: some(0.3),
    tear: some(0.2),
    loseCall: random.pick([0, 0, 0.3, 1]),
    isUnordered: random.chance(0.35),
  };
}
