import { rmSync } from 'node:fs';
import process from 'node:process';
import '@swc-node/register/esm-register';

/** Jest's global setup: the processes that specs start find their code compiled, here or before. */
export default async function compileOnce() {
  if (process.env.TEST_CODE) return;
  const { compile } = await import('../compiled-code.ts');
  const { folder, bundleWorkers } = await compile();
  await bundleWorkers();
  process.env.TEST_CODE = folder;
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
}
