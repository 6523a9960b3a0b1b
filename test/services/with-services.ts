/** Runs a command while the services run: `with-services [--only redis,postgres] -- command args…`. */
import { constants } from 'node:os';
import { Command } from 'commander';
import { execa } from 'execa';
import { interruption } from './interruption.js';
import { onlyOption } from './only-option.js';
import { openServices, type ServiceName } from './open-services.js';

const notFoundCode = 127;

const program = new Command('with-services')
  .addOption(onlyOption())
  .argument('<command...>', 'the command and its arguments, after --')
  .passThroughOptions()
  .parse();

const services = await openServices(program.opts<{ only: ServiceName[] }>().only);
try {
  process.exitCode = await run(program.args, services.variables);
} finally {
  await services.close();
}

/** The exit code of the command, told as a shell tells it. An interruption is passed on as SIGTERM, then SIGKILL. */
async function run([file = '', ...args]: readonly string[], variables: Readonly<Record<string, string>>) {
  const { exitCode, signal, shortMessage } = await execa(file, args, {
    env: variables,
    stdio: 'inherit',
    cancelSignal: interruption(),
    reject: false,
  });
  if (exitCode !== undefined) return exitCode;
  if (signal !== undefined) return 128 + constants.signals[signal];
  process.stderr.write(`${shortMessage}\n`);
  return notFoundCode;
}
