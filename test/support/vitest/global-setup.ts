import process from 'node:process';
import { compile } from '../compiled-code.js';

export default async function compileOnce() {
  if (process.env['TEST_CODE']) return undefined;
  const { folder, bundleWorkers, remove } = await compile();
  await bundleWorkers();
  process.env['TEST_CODE'] = folder;
  return remove;
}
