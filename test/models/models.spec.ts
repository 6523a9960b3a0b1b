import { cpSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { execa } from 'execa';
import { ensurePrograms } from '../services/install.js';
import { tempFolder } from '../support/temp-folder.js';
import { models } from './models.js';

const HERE = new URL('.', import.meta.url).pathname;
const folder = tempFolder();
/** A compiler and a search for each; nothing waits in them. */
const LIMIT_MS = 120_000;

await ensurePrograms(['spin', 'gcc']);

/** Looks at every state that the model can come to. */
async function verify(model: string, fault?: string): Promise<string> {
  const home = join(folder, `${model}-${fault ?? 'sound'}`);
  cpSync(join(HERE, `${model}.pml`), join(home, 'model.pml'));
  const defined = fault ? [`-D${fault}`] : [];
  const inHome = { cwd: home };
  await execa('spin', ['-a', ...defined, 'model.pml'], inHome);
  // The search is for faults of safety; a fault is found soon, so that one needs no optimizing.
  await execa('gcc', [fault ? '-O0' : '-O1', '-w', '-DSAFETY', '-DNOFAIR', '-o', 'pan', 'pan.c'], inHome);
  const { stdout } = await execa('./pan', ['-m100000'], inHome);
  return stdout;
}

describe.each(models)('$name', ({ name, faults }) => {
  it(
    'keeps its promises in every state',
    async () => {
      const report = await verify(name);
      expect(report).toMatch(/errors: 0$/m);
      expect(report).not.toMatch(/search not completed|max search depth too small/i);
    },
    LIMIT_MS,
  );

  it.each(faults)(
    'does not keep them with %s',
    async (fault) => {
      expect(await verify(name, fault)).toMatch(/errors: [1-9]/);
    },
    LIMIT_MS,
  );
});
