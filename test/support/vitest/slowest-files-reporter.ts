import process from 'node:process';
import type { Reporter, TestModule } from 'vitest/node';

const SHOWN = 15;

/** Which files took longest, and how long all of them took together. */
export class SlowestFilesReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    if (modules.length < SHOWN) return;
    const files = modules.map((module) => ({ name: module.relativeModuleId, seconds: secondsOf(module) }));
    const sum = files.reduce((sofar, { seconds }) => sofar + seconds, 0);
    const lines = files
      .sort((one, other) => other.seconds - one.seconds)
      .slice(0, SHOWN)
      .map(({ name, seconds }) => `${seconds.toFixed(1).padStart(6)} s  ${name}\n`);
    const head = `\nAll ${files.length} files took ${Math.round(sum)} s together. The longest:\n`;
    process.stderr.write(head + lines.join(''));
  }
}

function secondsOf(module: TestModule): number {
  const { collectDuration, duration } = module.diagnostic();
  return (collectDuration + duration) / 1_000;
}
