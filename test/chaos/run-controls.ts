import { rm } from 'node:fs/promises';
import { Command } from 'commander';
import { compile } from '../compiled.js';
import { type Control, controls } from './controls.js';
import { runEpisode } from './episode.js';
import { nemeses } from './nemesis/nemeses.js';
import { planFrom } from './plan.js';
import { worlds } from './worlds/worlds.js';
import type { World } from './worlds/world.js';

/** `npm run controls`: puts each fault into the code of the workers, and fails if no checker sees it. */
const { only, seed } = new Command('controls')
  .option('--only <text>', 'run the controls with this text in their title', '')
  .option('--seed <number>', 'of the chaos', Number, 1)
  .parse()
  .opts<{ only: string; seed: number }>();

const ROUNDS = 4;

const chosen = controls.filter(({ title }) => title.includes(only));
const blind: string[] = [];
const opened = new Map<string, World>();
try {
  for (const control of chosen) {
    const startedAtMs = performance.now();
    const red = await redFor(control);
    const isSeen = control.seenBy.some((checker) => red.has(checker));
    const seconds = ((performance.now() - startedAtMs) / 1_000).toFixed(0);
    const by = [...red].map(([checker, count]) => `${checker} ×${count}`).join(', ');
    console.log(
      `${isSeen ? 'seen  ' : 'UNSEEN'}  ${seconds.padStart(3)} s  ${control.title}: ${by || 'all green'}`,
    );
    if (!isSeen) blind.push(control.title);
  }
} finally {
  for (const world of opened.values()) await world.close();
}
console.log(`${chosen.length - blind.length} of ${chosen.length} faults seen`);
process.exitCode = blind.length === 0 && chosen.length > 0 ? 0 : 1;

/** How often each checker went red. */
async function redFor(control: Control): Promise<Map<string, number>> {
  const world = opened.get(control.backend) ?? (await worlds[control.backend]!({ withClock: false }));
  opened.set(control.backend, world);
  const code = await compile(control);
  try {
    const strikers = nemeses.filter(({ name }) => control.nemeses.some((text) => name.includes(text)));
    const plan = planFrom(seed, world, strikers, control.rounds ?? ROUNDS);
    const { violations, folder } = await runEpisode({ world, seed, plan, code: code.folder });
    if (folder) await rm(folder, { recursive: true });
    const red = new Map<string, number>();
    for (const { checker } of violations) red.set(checker, (red.get(checker) ?? 0) + 1);
    return red;
  } finally {
    await code.remove();
  }
}
