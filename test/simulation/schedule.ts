import { someHappenings, someTroubles } from './happenings.js';
import { Random, farApart } from '../random.js';
import { NO_TROUBLES } from './sim-link.js';
import { type Log, type Terms, World } from './world.js';

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
const PEACE_MS = 25_000;
/** After the last trouble, a claim that nobody has is given back within this time. */
const WITHDRAWN_MS = 8_000;
/** Nothing is on its way for so long. */
const STRAY_MS = 8_000;
/** By what factor a lease may be extended. */
const LONGEST_EXTENSION = 3;

/**
 * Runs one schedule: a few processes with locks on one store, some time of work and trouble, and then peace. Everything
 * follows from the seed: who wants what, what befalls him, and when. Only one can run at a time.
 */
export async function runSchedule(seed: number, log?: Log): Promise<Outcome> {
  const random = new Random(farApart(seed));
  const terms = someTerms(random);
  const troubles = terms.isCalm ? { ...NO_TROUBLES } : someTroubles(random);
  const happenings = someHappenings(random, terms.isCalm);
  const world = new World({ seed, random, terms, troubles, log });
  const { witness } = world;
  world.log(JSON.stringify({ ...terms, ...troubles, waitsMs: terms.waitsMs.map(String) }));
  try {
    for (let count = random.pick([1, 2, 2, 3, 4]); count > 0; count -= 1) world.start();
    for (let steps = random.whole(8, 45); steps > 0 && witness.findings.length === 0; steps -= 1) {
      random.pick(happenings)(world);
      await world.pass(someTime(random, terms));
    }
    if (witness.findings.length === 0) await endInPeace(world);
  } finally {
    world.end();
  }
  return { seed, findings: witness.findings, grants: witness.grants, events: world.events };
}

const someTerms = (random: Random): Terms => ({
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

const someTime = (random: Random, { leasesMs }: Terms) =>
  random.chance(0.05)
    ? random.between(0, 1.3) * random.pick(leasesMs)
    : random.between(0, random.pick([0, 0, 2, 20, 20, 200]));

/** All is well from now on: everybody is served, all is given back, and nothing is left behind. */
async function endInPeace(world: World): Promise<void> {
  const { troubles, store, members, witness, timeline, terms } = world;
  const mayBeRepeated = troubles.repeat > 0;
  Object.assign(troubles, NO_TROUBLES);
  store.isDown = false;
  store.slowMs = 0;
  for (const { link, callers } of members) {
    link.state = 'up';
    callers.isInHaste = true;
  }
  world.log('peace');
  const longestMs = Math.max(...terms.leasesMs) * LONGEST_EXTENSION;
  const untilMs = timeline.nowMs + longestMs + PEACE_MS;
  while (witness.findings.length === 0 && timeline.nowMs < untilMs && !isIdle(world)) {
    for (const { callers, process } of members) if (process.isAwake) callers.endAllWork();
    await world.pass(100);
  }
  if (witness.findings.length > 0) return;
  if (witness.pending > 0) {
    witness.fail(`somebody still waits: ${witness.waiting.join(', ')}`);
    return;
  }
  await world.pass(WITHDRAWN_MS);
  if (!mayBeRepeated) await expectNothingHeld(world, 'by a living process');
  await world.pass(longestMs * 1.02 + STRAY_MS);
  await expectNothingHeld(world, 'by anybody');
  expectNothingArmed(world);
}

const isIdle = ({ witness, members }: World) =>
  witness.pending === 0 &&
  witness.holds.length === 0 &&
  members.every(({ process, callers }) => process.isDead || (process.isUpToDate && !callers.isWorking));

async function expectNothingHeld(world: World, who: 'by a living process' | 'by anybody'): Promise<void> {
  const { terms, store, witness, storeKeyOf } = world;
  for (const key of terms.keys) {
    const record = await store.backend.inspect(storeKeyOf(key), 0);
    const { process, callers } = (record && world.memberOf(record.holder)) ?? {};
    if (!record || !process) continue;
    const isAlive = !process.isDead && !callers?.isShutDown;
    if (isAlive || who === 'by anybody')
      witness.fail(`"${key}" is still held ${who}: ${process.name}, for ${record.remainingMs} ms`);
  }
}

function expectNothingArmed({ members, witness, terms, store, storeKeyOf }: World): void {
  for (const { process } of members) {
    if (!process.isDead && process.clock.pending > 0)
      witness.fail(`${process.name} has ${process.clock.pending} timers left`);
  }
  for (const key of terms.keys) {
    if (store.waitingFor(storeKeyOf(key)) > 0) witness.fail(`somebody still stands in the line for "${key}"`);
  }
}
