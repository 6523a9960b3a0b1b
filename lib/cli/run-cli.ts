import { LockConfigError, LockUnavailableError } from '../core/errors.js';
import { formatReason } from '../core/format.js';
import { describeStoreFailure } from '../core/store-failures.js';
import { VERSION } from '../core/version.js';
import { type Command, HELP, parseCommand } from './arguments.js';
import type { Output } from './output.js';
import { freeLock, printLocks, printRuns } from './commands.js';
import { openStore } from './open-store.js';
import { UsageError } from './usage-error.js';

const EXIT = { done: 0, refused: 1, usage: 2, unavailable: 3 } as const;

/** Runs one command of `npx nestjs-distributed-lock`. Returns its exit code, as {@link HELP} lists them. */
export async function runCli(args: readonly string[], output: Output): Promise<number> {
  try {
    return (await runCommand(parseCommand(args), output)) ? EXIT.done : EXIT.refused;
  } catch (error) {
    output.warn(describe(error));
    if (error instanceof UsageError) output.warn('For the usage: npx nestjs-distributed-lock --help');
    return error instanceof UsageError || error instanceof LockConfigError ? EXIT.usage : EXIT.unavailable;
  }
}

const describe = (error: unknown) =>
  error instanceof LockUnavailableError
    ? `The lock store ${describeStoreFailure(error.cause)}.`
    : formatReason(error);

async function runCommand(command: Command, output: Output): Promise<boolean> {
  if (command.name === 'help' || command.name === 'version') {
    output.print(command.name === 'help' ? HELP : VERSION);
    return true;
  }
  await using store = await openStore(command.store);
  switch (command.name) {
    case 'locks':
      return await printLocks(store, command, output);
    case 'free':
      return await freeLock(store, command, output);
    case 'runs':
      return await printRuns(store, command, output);
  }
}
