import { mkdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { writeFiles } from '../packaging/application.js';
import { pack, unpack } from '../packaging/pack.js';
import { ROOT, toJavaScript } from '../support/compiled-code.js';

/** Node.js finds Nest 11 from here. */
const folder = join(ROOT, 'test/nest-11/dist/board');
const NAME = 'board-replica';

/** Installs the packed package below Nest 11, and beside it the file that serves the page. Answers that file. */
export async function installNest11Replica(): Promise<string> {
  await removeNest11Replica();
  await mkdir(folder, { recursive: true });
  await unpack(await pack(ROOT, folder), folder);
  const source = join(ROOT, `test/browser/workers/${NAME}.ts`);
  await writeFiles(folder, {
    'package.json': '{ "type": "module" }',
    [`${NAME}.js`]: await toJavaScript(await readFile(source, 'utf8'), source),
  });
  return join(folder, `${NAME}.js`);
}

export const removeNest11Replica = () => rm(folder, { recursive: true, force: true });
