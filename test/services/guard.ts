import type { Socket } from 'node:net';
import { execa } from 'execa';

/** What a guard cleans up in the end. */
interface CleanUpOptions {
  readonly stopSignal: NodeJS.Signals;
  /** The folder to remove; undefined keeps all folders. */
  readonly folder: string | undefined;
}

// In: $1 the signal that ends a server, $2 the folder to remove or '', stdin: one line with the process group to watch, 0 for none.
// Out: nothing; when stdin closes, the group of the last line is ended, killed after 10 s, and the folder removed.
// One shell with a session of its own, because it must outlive a process that gets SIGKILL, and cost nothing meanwhile.
const script = `
watched=0
while read -r line; do watched=$line; done
if [ "$watched" -gt 0 ] && kill -s "$1" -- "-$watched"; then
  kill -s CONT -- "-$watched"
  tries=0
  while [ "$tries" -lt 100 ] && kill -s 0 -- "-$watched"; do
    sleep 0.1
    tries=$((tries + 1))
  done
  kill -s KILL -- "-$watched"
fi
[ -z "$2" ] || rm -rf -- "$2"
`;

/** Ends the watched process and removes the folder as soon as we close it or die, even by SIGKILL. */
export class Guard {
  readonly #shell;

  constructor({ stopSignal, folder }: CleanUpOptions) {
    const signalName = stopSignal.replace('SIG', '');
    this.#shell = execa('/bin/sh', ['-c', script, 'guard', signalName, folder ?? ''], {
      detached: true,
      stdin: 'pipe',
      stdout: 'ignore',
      stderr: 'ignore',
      reject: false,
      cwd: '/',
    });
    // A guard that nobody closes must not keep us alive: our end is what it waits for.
    this.#shell.unref();
    (this.#shell.stdin as Socket).unref();
  }

  /** The process must lead its own group: the guard ends the whole group. */
  watch(pid: number): void {
    this.#shell.stdin.write(`${pid}\n`);
  }

  // A process id may be given to a stranger once its process is gone.
  unwatch(): void {
    this.#shell.stdin.write('0\n');
  }

  async close(): Promise<void> {
    this.#shell.ref();
    this.#shell.stdin.end();
    await this.#shell;
  }
}
