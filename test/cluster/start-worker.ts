import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export interface Worker<Message> {
  readonly process: ChildProcess;
  /** All that it has told so far. */
  readonly messages: Message[];
  /** Settles with the exit code, or with the signal that ended it. */
  readonly ended: Promise<number | NodeJS.Signals>;
}

/** Starts one of the files in `workers/` as a process of its own. It must not outlive the spec: see {@link endAllWorkers}. */
export const startWorker = <Message>(name: string, task: object): Worker<Message> =>
  startTestFile(`cluster/workers/${name}`, task, 'bundled');

/** Starts a file of `test/`, named without its extension, as {@link startWorker} does. */
export function startTestFile<Message>(name: string, task: object, compiledIn = ''): Worker<Message> {
  const args = [JSON.stringify(task)];
  const compiled = process.env.TEST_CODE;
  if (compiled !== undefined) {
    const file = join(compiled, compiledIn, 'test', `${name}.js`);
    return startProcess(file, { args, execArgv: ['--expose-gc'] });
  }
  const file = fileURLToPath(new URL(`../${name}.ts`, import.meta.url));
  const loader = ['--import', '@swc-node/register/esm-register'];
  return startProcess(file, { args, execArgv: [...loader, '--expose-gc'] });
}

/** Starts a file as a process that a rejection which nobody handles ends. */
export function startProcess<Message>(
  file: string,
  { args = [], execArgv = [] }: { readonly args?: string[]; readonly execArgv?: readonly string[] } = {},
): Worker<Message> {
  const child = fork(file, args, {
    execArgv: [...execArgv, '--unhandled-rejections=strict', '--no-warnings'],
    env: { ...process.env, NODE_OPTIONS: '' },
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  running.add(child);
  const messages: Message[] = [];
  child.on('message', (message) => messages.push(message as Message));
  const ended = once(child, 'exit').then(([code, signal]) => {
    running.delete(child);
    return (code ?? signal) as number | NodeJS.Signals;
  });
  return { process: child, messages, ended };
}

const running = new Set<ChildProcess>();

/** Ends what a failed test left running. */
export async function endAllWorkers(): Promise<void> {
  const ends = [...running].map((child) => once(child, 'exit'));
  for (const child of running) child.kill('SIGKILL');
  await Promise.all(ends);
}
