import './sim-event-loop.js'; // First, as the others keep the timers that they find.
import { setImmediate as turnOfEventLoop } from 'node:timers/promises';
import { Command, InvalidArgumentError } from 'commander';
import { runSchedule } from './schedule.js';

/** `npm run simulate -- --seed 7 --schedules 100000`: schedule after schedule, each from the next seed. */
const { seed, schedules, findings, trace } = new Command('simulate')
  .option('--seed <number>', 'of the first schedule', whole, Date.now() % 1_000_000_000)
  .option('--schedules <number>', 'how many', whole, 10_000)
  .option('--findings <number>', 'end after so many', whole, 5)
  .option('--trace', 'tell all that happens', false)
  .parse()
  .opts<{ seed: number; schedules: number; findings: number; trace: boolean }>();

const REPORT_EACH_MS = 10_000;

let current = seed;
const found: number[] = [];
process.on('unhandledRejection', (reason) =>
  recordFindings([`a rejection that nobody handled: ${String(reason)}`]),
);

const startedAt = performance.now();
let reportAt = startedAt + REPORT_EACH_MS;
let [done, grants, events] = [0, 0, 0];
for (; done < schedules && found.length < findings; done += 1) {
  current = seed + done;
  const outcome = await runSchedule(current, trace ? console.log : undefined);
  grants += outcome.grants;
  events += outcome.events;
  if (outcome.findings.length > 0) recordFindings(outcome.findings);
  await turnOfEventLoop();
  if (performance.now() < reportAt) continue;
  reportAt += REPORT_EACH_MS;
  report();
}
report();
process.exitCode = found.length === 0 ? 0 : 1;

function recordFindings(what: readonly string[]): void {
  if (!found.includes(current)) found.push(current);
  for (const finding of what) console.log(`seed ${current}: ${finding}`);
}

function report(): void {
  const seconds = (performance.now() - startedAt) / 1_000;
  console.log(
    `seeds ${seed} to ${seed + done - 1}: ${done} schedules, ${grants} locks handed out, ${events} events, ` +
      `${seconds.toFixed(1)} s (${Math.round(done / seconds)} schedules a second), ` +
      (found.length === 0 ? 'no finding' : `findings at ${found.join(', ')}`),
  );
}

function whole(text: string): number {
  const number = Number(text);
  if (Number.isSafeInteger(number) && number >= 0) return number;
  throw new InvalidArgumentError(`Expected a whole number, but got "${text}".`);
}
