import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { machineMs } from '../machine-ms.js';
import { until } from '../until.js';
import { type Kept, orphansOf } from './checkers/orphans.js';
import { Crew } from './crew.js';
import { type Ask, asksOf } from './history.js';
import type { Scene } from './nemesis/nemesis.js';
import type { Round } from './plan.js';
import { Random } from '../random.js';
import { Resource } from './resource.js';
import type { Strike } from './strike.js';
import { type Findings, find } from './findings.js';
import type { World } from './worlds/world.js';

export interface Episode {
  readonly world: World;
  readonly seed: number;
  readonly plan: readonly Round[];
  /** Where the compiled code of the workers is. */
  readonly code: string;
  /**
   * How many processes work at the same time.
   *
   * @default 4
   */
  readonly size?: number;
  /** Ends it after the round that is under way. */
  readonly interrupted?: AbortSignal;
}

/** Once a round is over and all have started, each process must be granted something within this time. */
const RECOVERY_MS = 20_000;
const LOOK_EACH_MS = 20;
const WISHES = { callers: 4, keys: 5 } as const;

/** Lets processes work while things go wrong, round after round, and tells what the checkers say of what they wrote. */
export async function runEpisode(episode: Episode): Promise<Findings> {
  const { world, seed, plan, code, size = 4, interrupted } = episode;
  const folder = mkdtempSync(join(tmpdir(), `lock-chaos-${world.name}-${seed}-`));
  const namespace = randomUUID();
  const resource = await Resource.open();
  const random = new Random(seed);
  const crew = await Crew.start({
    world,
    random,
    code,
    folder,
    namespace,
    resourcePort: resource.port,
    size,
    ...WISHES,
  });
  const strikes: Strike[] = [];
  const stuck: string[] = [];
  let isClean = false;
  try {
    const recover = async (after: string) => {
      await until(() => crew.isWorking);
      const sinceMs = machineMs();
      const late = await recovery(crew, resource, sinceMs);
      stuck.push(
        ...late.map((name) => `${name} was granted nothing within ${RECOVERY_MS} ms after ${after}`),
      );
      return machineMs() - sinceMs;
    };
    await recover('the start');
    for (const round of plan) {
      if (interrupted?.aborted) break;
      const done = await all(round.map((one) => strike({ world, crew }, one)));
      const recoveryMs = await recover(round.map(({ nemesis }) => nemesis.name).join(' + '));
      strikes.push(...done.map((one) => ({ ...one, recoveryMs })));
    }
    await crew.end();
    const asks = asksOf(crew.lives);
    const findings = find({
      ...{ asks, strikes, stuck, stops: crew.stops, crashes: crew.crashes, left: crew.left },
      attempts: resource.attempts,
      lists: { fenced: [...resource.fenced.values()], unfenced: [...resource.unfenced.values()] },
      orphans: await orphans(world, namespace, asks),
    });
    isClean = findings.violations.length === 0;
    if (isClean) return findings;
    writeFileSync(join(folder, 'findings.json'), JSON.stringify(findings, null, 2));
    return { ...findings, folder };
  } finally {
    await crew.clear();
    await resource.close();
    if (isClean) rmSync(folder, { recursive: true, force: true });
  }
}

async function strike(scene: Scene, { nemesis, seed }: Round[number]): Promise<Strike> {
  const struckAtMs = machineMs();
  await nemesis.strike(scene, new Random(seed));
  const { name, isInsideGuarantee } = nemesis;
  return { nemesis: name, isInsideGuarantee, struckAtMs, healedAtMs: machineMs() };
}

/** Like `Promise.all`, but none is still at work when another has failed. */
async function all<T>(promises: readonly Promise<T>[]): Promise<T[]> {
  await Promise.allSettled(promises);
  return Promise.all(promises);
}

/** Waits until each process has come with a lock; tells who did not in time. */
async function recovery(crew: Crew, resource: Resource, sinceMs: number): Promise<string[]> {
  const missing = () =>
    crew.seats
      .filter(({ member }) => resource.heardFromAtMs(member.name) < sinceMs)
      .map(({ member }) => member.name);
  while (missing().length > 0 && machineMs() - sinceMs < RECOVERY_MS) await sleep(LOOK_EACH_MS);
  return missing();
}

/** What was on its way when the last application closed may take a moment. */
const FAREWELL_MS = 2_000;

async function orphans(world: World, namespace: string, asks: readonly Ask[]): Promise<Kept[]> {
  const giveUpAtMs = machineMs() + FAREWELL_MS;
  for (;;) {
    const left = orphansOf(await world.kept(namespace), asks, machineMs());
    if (left.length === 0 || machineMs() > giveUpAtMs) return left;
    await sleep(100);
  }
}
