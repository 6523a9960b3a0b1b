import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from '@jest/globals';
import { execaNode } from 'execa';
import ts from 'typescript';
import { ROOT } from './sources.js';

/** Inside the package, so that the examples can import it by its name. */
const folder = join(ROOT, 'dist/readme');
const readme = readFileSync(join(ROOT, 'README.md'), 'utf8');
const guide = readFileSync(join(ROOT, 'docs/your-own-backend.md'), 'utf8');
const examplesIn = (text: string, name: string) =>
  [...text.matchAll(/^```ts\n([\s\S]*?)^```/gm)].map(([, code], index) => {
    const file = join(folder, `${name}-${index + 1}.ts`);
    return { name: `${name} ${index + 1}`, file, code: code! };
  });
const examples = [...examplesIn(readme, 'example'), ...examplesIn(guide, 'backend')];

rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
for (const { file, code } of examples) writeFileSync(file, code);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('the examples of the README and of the guide to backends', () => {
  it('are there', () => {
    expect(examples.length).toBeGreaterThanOrEqual(8);
  });

  it.each(['nodenext', 'bundler'])('compile with the module resolution %s', (moduleResolution) => {
    const { options } = ts.convertCompilerOptionsFromJson(
      {
        target: 'es2022',
        module: moduleResolution === 'nodenext' ? 'nodenext' : 'esnext',
        moduleResolution,
        lib: ['es2023', 'esnext.disposable'],
        types: ['node'],
        strict: true,
        experimentalDecorators: true,
        emitDecoratorMetadata: true,
        skipLibCheck: false,
        noEmit: true,
      },
      ROOT,
    );
    const program = ts.createProgram(
      examples.map(({ file }) => file),
      options,
    );
    const ours = ts
      .getPreEmitDiagnostics(program)
      .filter(({ file }) => !file?.fileName.includes('node_modules'));
    expect(ours.map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n'))).toEqual([]);
  });

  it.each(examples)('run: $name', async ({ file }) => {
    const nodeOptions = ['--import', '@swc-node/register/esm-register', '--no-warnings'];
    await execaNode(file, { cwd: ROOT, nodeOptions });
  });
});

describe('the commands of the README', () => {
  it('are those of the manifest', () => {
    const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { scripts: object };
    const named = [...readme.matchAll(/npm run ([\w:]+)/g)].map(([, script]) => script);
    expect(Object.keys(scripts)).toEqual(expect.arrayContaining(named));
  });
});
