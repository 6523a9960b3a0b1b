import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Command } from 'commander';
import { execa } from 'execa';

/**
 * `npm run standstills`: runs the whole suite while all its processes stand still now and then, as on a virtual machine that is
 * suspended for a moment. A spec that fails waits for a duration, or the code that it tests takes a late reply for none.
 */
const { shortest, longest, every } = new Command()
  .option('--shortest <ms>', 'of the standstills', Number, 700)
  .option('--longest <ms>', 'of the standstills', Number, 2_000)
  .option('--every <ms>', 'how long the suite runs in between, on average', Number, 8_000)
  .parse()
  .opts<{ readonly shortest: number; readonly longest: number; readonly every: number }>();

const suite = execa('npm test && npm run test:cluster', { shell: true, stdio: 'inherit', reject: false });
const ended = once(suite, 'exit').then(() => true);
const hasEnded = (waitMs: number) => Promise.race([ended, sleep(waitMs, false, { ref: false })]);
while (!(await hasEnded(every * (0.5 + Math.random())))) {
  const stopped = (await runningProcesses()).filter((pid) => signal(pid, 'SIGSTOP'));
  await sleep(shortest + Math.random() * (longest - shortest));
  for (const pid of stopped.reverse()) signal(pid, 'SIGCONT');
}
process.exitCode = (await suite).exitCode ?? 1;

/** The suite and all that it has started, without what a spec has stopped itself. */
async function runningProcesses(): Promise<number[]> {
  const { stdout } = await execa('ps', ['-eo', 'pid=,ppid=,stat=']);
  const rows = stdout.split('\n').map((line) => line.trim().split(/\s+/));
  const running: number[] = [];
  const addTree = (parent: number) => {
    for (const [pid, ppid, state = ''] of rows) {
      if (Number(ppid) !== parent) continue;
      if (!state.startsWith('T')) running.push(Number(pid));
      addTree(Number(pid));
    }
  };
  addTree(suite.pid ?? process.pid);
  return running;
}

/** Returns whether the process was there. */
function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, name);
  } catch {
    return false;
  }
}
