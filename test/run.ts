/** `npm test`: lints while the specs run, since the specs mostly wait. Arguments go to Vitest. */
import process from 'node:process';
import { execa } from 'execa';
import { interruption } from './services/interruption.js';

const withServices = ['--import', '@swc-node/register/esm-register', 'test/services/with-services.ts', '--'];

const stopSpecs = new AbortController();
const specs = execa(
  process.execPath,
  [...withServices, 'npm', 'run', 'specs', '--', ...process.argv.slice(2)],
  {
    stdio: 'inherit',
    cancelSignal: AbortSignal.any([interruption(), stopSpecs.signal]),
    // The servers are stopped first.
    forceKillAfterDelay: 60_000,
    reject: false,
  },
);
const lint = await execa('npm', ['run', 'lint'], { all: true, cancelSignal: interruption(), reject: false });
if (lint.failed) stopSpecs.abort();
const { failed } = await specs;
// Last, where somebody looks.
if (lint.failed) process.stdout.write(`${lint.all}\n`);
if (lint.failed || failed) process.exitCode = 1;
