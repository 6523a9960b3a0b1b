import { pickEvents, pickNetworkFaults } from './simulated-events.js';
import { Random, spreadSeed } from '../support/random.js';
import { NO_NETWORK_FAULTS } from './sim-connection.js';
import { type Log, type ScheduleConfig, Simulation } from './simulation.js';

export interface Outcome {
  readonly seed: number;
  /** What broke a promise. */
  readonly findings: readonly string[];
  /** How many locks were handed out. */
  readonly grants: number;
  /** How much happened. */
  readonly events: number;
}

/** After the last trouble and the end of all leases, nobody waits any longer than this. */
const SETTLE_MS = 25_000;
/** After the last trouble, a claim that nobody has is given back within this time. */
const WITHDRAWN_MS = 8_000;
/** Nothing is on its way for so long. */
const STRAY_MS = 8_000;
/** By what factor a lease may be extended. */
const MAX_EXTENSION_FACTOR = 3;

/**
 * Runs one schedule: a few processes with locks on one store, some time of work and trouble, and then peace. Everything
 * follows from the seed: who wants what, what befalls him, and when. Only one can run at a time.
 */
export async function runSchedule(seed: number, log?: Log): Promise<Outcome> {
  const random = new Random(spreadSeed(seed));
  const config = pickConfig(random);
  const networkFaults = config.isCalm ? { ...NO_NETWORK_FAULTS } : pickNetworkFaults(random);
  const events = pickEvents(random, config.isCalm);
  const simulation = new Simulation({ seed, random, config, networkFaults, log });
  const { checker } = simulation;
  simulation.log(JSON.stringify({ ...config, ...networkFaults, waitsMs: config.waitsMs.map(String) }));
  try {
    for (let count = random.pick([1, 2, 2, 3, 4]); count > 0; count -= 1) simulation.start();
    for (let steps = random.whole(8, 45); steps > 0 && checker.findings.length === 0; steps -= 1) {
      random.pick(events)(simulation);
      await simulation.advance(pickPause(random, config));
    }
    if (checker.findings.length === 0) await settleAndCheck(simulation);
  } finally {
    simulation.end();
  }
  return { seed, findings: checker.findings, grants: checker.grants, events: simulation.events };
}

const pickConfig = (random: Random): ScheduleConfig => ({
  kind: random.pick(['line', 'memory']),
  isCalm: random.chance(0.15),
  keys: ['a', 'b', 'c'].slice(0, random.pick([1, 1, 2, 3])),
  leasesMs: random.pick([[150], [1_000], [1_000], [1_000, 400], [4_000], [4_000, 300], [20_000], [20_000]]),
  waitsMs: random.pick([[0, 100, 2_000], [500, Infinity], [10_000], [0, 50, 3_000, Infinity]]),
  longestDelayMs: random.pick([80, 500, 2_000, 4_000]),
  renewed: random.pick([1, 1, 0.9, 0.5, 0]),
  longestHold: random.pick([0.5, 2, 2]),
  areWatched: random.chance(0.3),
});

const pickPause = (random: Random, { leasesMs }: ScheduleConfig) =>
  random.chance(0.05)
    ? random.between(0, 1.3) * random.pick(leasesMs)
    : random.between(0, random.pick([0, 0, 2, 20, 20, 200]));

/** All is well from now on: everybody is served, all is given back, and nothing is left behind. */
async function settleAndCheck(simulation: Simulation): Promise<void> {
  const { networkFaults, store, instances, checker, timeline, config } = simulation;
  const mayBeRepeated = networkFaults.repeat > 0;
  Object.assign(networkFaults, NO_NETWORK_FAULTS);
  store.isDown = false;
  store.slowMs = 0;
  for (const { connection, callers } of instances) {
    connection.state = 'up';
    callers.releasesAtOnce = true;
  }
  simulation.log('peace');
  const longestMs = Math.max(...config.leasesMs) * MAX_EXTENSION_FACTOR;
  const untilMs = timeline.nowMs + longestMs + SETTLE_MS;
  while (checker.findings.length === 0 && timeline.nowMs < untilMs && !isIdle(simulation)) {
    for (const { callers, process } of instances) if (process.isAwake) callers.endAllWork();
    await simulation.advance(100);
  }
  if (checker.findings.length > 0) return;
  if (checker.pending > 0) {
    checker.fail(`somebody still waits: ${checker.waiting.join(', ')}`);
    return;
  }
  await simulation.advance(WITHDRAWN_MS);
  if (!mayBeRepeated) await expectNothingHeld(simulation, 'by a living process');
  await simulation.advance(longestMs * 1.02 + STRAY_MS);
  await expectNothingHeld(simulation, 'by anybody');
  expectNoTimers(simulation);
}

const isIdle = ({ checker, instances }: Simulation) =>
  checker.pending === 0 &&
  checker.holds.length === 0 &&
  instances.every(({ process, callers }) => process.isDead || (process.isUpToDate && !callers.isWorking));

async function expectNothingHeld(
  simulation: Simulation,
  who: 'by a living process' | 'by anybody',
): Promise<void> {
  const { config, store, checker, storeKeyOf } = simulation;
  for (const key of config.keys) {
    const record = await store.backend.inspect(storeKeyOf(key), 0);
    const { process, callers } = (record && simulation.instanceOf(record.holder)) ?? {};
    if (!record || !process) continue;
    const isAlive = !process.isDead && !callers?.isShutDown;
    if (isAlive || who === 'by anybody')
      checker.fail(`"${key}" is still held ${who}: ${process.name}, for ${record.remainingMs} ms`);
  }
}

function expectNoTimers({ instances, checker, config, store, storeKeyOf }: Simulation): void {
  for (const { process } of instances) {
    if (!process.isDead && process.clock.pending > 0)
      checker.fail(`${process.name} has ${process.clock.pending} timers left`);
  }
  for (const key of config.keys) {
    if (store.waitingFor(storeKeyOf(key)) > 0) checker.fail(`somebody still stands in the line for "${key}"`);
  }
}
