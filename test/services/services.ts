/** Runs the services until Ctrl-C and prints the lines that tell another shell where they are. */
import { once } from 'node:events';
import { Command } from 'commander';
import { interruption } from './interruption.js';
import { onlyOption } from './only-option.js';
import { openServices, type ServiceName } from './open-services.js';

const program = new Command('services').addOption(onlyOption()).parse();

const services = await openServices(program.opts<{ only: ServiceName[] }>().only);
const interrupted = once(interruption(), 'abort');
for (const [variable, value] of Object.entries(services.variables))
  console.log(`export ${variable}='${value}'`);
console.error('The services run until you press Ctrl-C.');

// Where every service was given there is nothing else that keeps this process alive.
const alive = setInterval(() => undefined, 60_000);
await interrupted;
clearInterval(alive);
await services.close();
