import type { Random } from '../support/random.js';
import type { NetworkFaults } from './sim-connection.js';
import type { SimInstance, Simulation } from './simulation.js';

type SimulatedEvent = (simulation: Simulation) => void;

/** So many processes there may ever be. */
const MAX_PROCESSES = 5;
/** Shorter sleeps are below what two clocks are compared by. */
const MIN_SLEEP_MS = 1_150;

const pickAwake = ({ instances, random }: Simulation): SimInstance | undefined => {
  const awake = instances.filter(({ process, callers }) => process.isAwake && !callers.isShutDown);
  return awake.length > 0 ? random.pick(awake) : undefined;
};

const byCaller = (
  what: 'acquire' | 'tryAcquire' | 'abort' | 'endWork' | 'extend' | 'release' | 'forceRelease',
) =>
  ((simulation) => {
    const instance = pickAwake(simulation);
    simulation.log(`${instance?.process.name ?? 'nobody'} ${what}`);
    instance?.callers[what]();
  }) satisfies SimulatedEvent;

const several: SimulatedEvent = (simulation) => {
  const instance = pickAwake(simulation);
  for (let count = simulation.random.whole(2, 6); count > 0; count -= 1) instance?.callers.acquire();
};

const stop: SimulatedEvent = (simulation) => {
  const { random, config } = simulation;
  const instance = pickAwake(simulation);
  const leaseMs = random.pick(config.leasesMs);
  const forMs = Math.min(
    random.pick([random.between(1, 50), leaseMs / 2, leaseMs * random.between(0.9, 2.5)]),
    6_000,
  );
  simulation.log(`${instance?.process.name ?? 'nobody'} stands still for ${forMs}`);
  instance?.process.stop(forMs);
};

const sleep: SimulatedEvent = (simulation) => {
  const instance = pickAwake(simulation);
  const forMs = MIN_SLEEP_MS + simulation.random.between(0, 1) ** 2 * 5_000;
  simulation.log(`${instance?.process.name ?? 'nobody'} sleeps for ${forMs}`);
  instance?.process.sleep(forMs);
};

const setWall: SimulatedEvent = (simulation) => {
  const { random } = simulation;
  const ms = random.pick([-1, 1]) * random.pick([100, 900, 1_500, 60_000, 86_400_000]);
  const instance = pickAwake(simulation);
  simulation.log(`${instance?.process.name ?? 'nobody'} sets its clock by ${ms}`);
  instance?.process.clock.setWallBy(ms);
};

const crash: SimulatedEvent = (simulation) => {
  const { instances, random } = simulation;
  if (instances.filter(({ process }) => !process.isDead).length < 2) return;
  const instance = random.pick(instances);
  simulation.log(`${instance.process.name} crashes`);
  instance.process.crash();
};

const start: SimulatedEvent = (simulation) => {
  if (simulation.instances.length < MAX_PROCESSES) simulation.start();
};

const shutDown: SimulatedEvent = (simulation) => {
  const instance = pickAwake(simulation);
  if (!instance) return;
  simulation.log(`${instance.process.name} shuts down`);
  simulation.awaitRealTurns();
  instance.callers.shutDown();
};

const cutLink: SimulatedEvent = (simulation) => {
  const { random, timeline } = simulation;
  const { connection, process } = random.pick(simulation.instances);
  const forMs = random.pick([20, 300, 2_500, 7_000]);
  connection.state = random.pick(['refused', 'silent']);
  simulation.log(`${process.name} is cut off, ${connection.state}, for ${forMs}`);
  timeline.in(forMs, () => {
    connection.state = 'up';
    connection.notify({});
  });
};

const stallStore: SimulatedEvent = ({ random, timeline, store, log }) => {
  store.slowMs = random.pick([10, 300, 1_500]);
  log(`the store takes ${store.slowMs}`);
  timeline.in(random.pick([100, 3_000]), () => (store.slowMs = 0));
};

const stopStore: SimulatedEvent = ({ random, timeline, store, log }) => {
  store.isDown = true;
  log('the store goes down');
  timeline.in(random.pick([20, 500, 4_000]), () => (store.isDown = false));
};

const resetStore: SimulatedEvent = ({ random, timeline, store, checker, log }) => {
  store.isDown = true;
  timeline.in(random.between(20, 300), () => {
    store.isDown = false;
    store.reset();
    checker.onStoreReset();
    log('the store has forgotten everything');
  });
};

/** Troubles of which each schedule has some and not the others, so that none hides another. */
const KINDS: readonly (readonly SimulatedEvent[])[] = [
  [stop, stop],
  [crash, start],
  [shutDown, start],
  [cutLink],
  [stallStore],
  [stopStore],
  [resetStore],
  [byCaller('forceRelease')],
];

/** What may happen in a schedule, as often as it stands there. */
export function pickEvents(random: Random, isCalm: boolean): readonly SimulatedEvent[] {
  const usual: SimulatedEvent[] = [
    ...Array<SimulatedEvent>(random.whole(3, 10)).fill(byCaller('acquire')),
    ...Array<SimulatedEvent>(random.whole(0, 4)).fill(byCaller('tryAcquire')),
    ...Array<SimulatedEvent>(random.whole(0, 2)).fill(several),
    ...Array<SimulatedEvent>(random.whole(1, 5)).fill(byCaller('release')),
    ...Array<SimulatedEvent>(random.whole(1, 3)).fill(byCaller('endWork')),
    ...Array<SimulatedEvent>(random.whole(0, 2)).fill(byCaller('extend')),
    ...Array<SimulatedEvent>(random.whole(0, 2)).fill(byCaller('abort')),
  ];
  if (isCalm) return usual;
  const faultKinds = KINDS.filter(() => random.chance(0.35)).flat();
  const clocks = random.pick([[], [], [sleep], [setWall]]);
  return [...usual, ...faultKinds, ...clocks];
}

/** What befalls messages on their way. */
export function pickNetworkFaults(random: Random): NetworkFaults {
  const upTo = (most: number) => (random.chance(0.35) ? random.between(0, most) : 0);
  return {
    loseRequest: upTo(0.3),
    loseAnswer: upTo(0.3),
    repeat: upTo(0.3),
    delay: upTo(0.3),
    tear: upTo(0.2),
    loseCall: random.pick([0, 0, 0.3, 1]),
    isUnordered: random.chance(0.35),
  };
}
