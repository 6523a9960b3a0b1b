import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { execaNode } from 'execa';
import ts from 'typescript';
import { toJavaScript } from '../compiled.js';
import { ROOT } from './sources.js';

/** Inside the package, so that the examples can import it by its name. */
const folder = join(ROOT, 'dist/readme');
const readme = readFileSync(join(ROOT, 'README.md'), 'utf8');
const guide = readFileSync(join(ROOT, 'docs/your-own-backend.md'), 'utf8');
const setups = readFileSync(join(ROOT, 'docs/backends.md'), 'utf8');
const testing = readFileSync(join(ROOT, 'docs/testing.md'), 'utf8');
const examplesIn = (text: string, name: string) =>
  [...text.matchAll(/^```ts\n([\s\S]*?)^```/gm)].map(([, code], index) => {
    const file = join(folder, `${name}-${index + 1}.ts`);
    return { name: `${name} ${index + 1}`, file, code: code! };
  });
const examples = [
  ...examplesIn(readme, 'example'),
  ...examplesIn(guide, 'backend'),
  ...examplesIn(setups, 'setup'),
  ...examplesIn(testing, 'testing'),
];

rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
for (const { file, code } of examples) writeFileSync(file, code);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('the examples of the README and of the guides to backends and to testing', () => {
  it('are there', () => {
    expect(examples.length).toBeGreaterThanOrEqual(11);
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
    // Those of dependencies would take most of the time.
    const files = program.getSourceFiles().filter(({ fileName }) => !fileName.includes('node_modules'));
    const ours = [
      ...program.getConfigFileParsingDiagnostics(),
      ...program.getOptionsDiagnostics(),
      ...program.getGlobalDiagnostics(),
      ...files.flatMap((file) => [
        ...program.getSyntacticDiagnostics(file),
        ...program.getSemanticDiagnostics(file),
      ]),
    ];
    expect(files.map(({ fileName }) => fileName)).toEqual(
      expect.arrayContaining(examples.map(({ file }) => file)),
    );
    expect(ours.map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n'))).toEqual([]);
  });

  describe('as JavaScript', () => {
    const codeOf = (file: string) => file.replace(/\.ts$/, '.js');
    beforeAll(async () => {
      for (const { file, code } of examples) writeFileSync(codeOf(file), await toJavaScript(code, file));
    });

    it.each(examples)('run: $name', async ({ file }) => {
      await execaNode(codeOf(file), { cwd: ROOT, nodeOptions: ['--no-warnings'] });
    });
  });
});

describe('the commands of the README', () => {
  it('are those of the manifest', () => {
    const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { scripts: object };
    const named = [...readme.matchAll(/npm run ([\w:-]+)/g)].map(([, script]) => script);
    expect(Object.keys(scripts)).toEqual(expect.arrayContaining(named));
  });
});

describe('the links of what comes with the package', () => {
  const { files } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { files: string[] };
  const documents = [
    'README.md',
    'CHANGELOG.md',
    ...readdirSync(join(ROOT, 'docs')).map((name) => `docs/${name}`),
  ];
  const links = documents
    .filter((document) => document.endsWith('.md'))
    .flatMap((document) =>
      [...readFileSync(join(ROOT, document), 'utf8').matchAll(/\]\((?!https?:)([^)\s]+)\)/g)].map(
        ([, to]) => {
          const [path = '', anchor = ''] = to!.split('#');
          return { document, path: path && join(dirname(document), path), anchor };
        },
      ),
    );

  it('lead to files in it', () => {
    const outside = links.filter(
      ({ path }) =>
        path && path !== 'README.md' && !files.some((shipped) => `${path}/`.startsWith(`${shipped}/`)),
    );
    expect(outside).toEqual([]);
    expect(links.filter(({ path }) => path && !existsSync(join(ROOT, path)))).toEqual([]);
  });

  it('lead to headings that are there', () => {
    const lost = links.filter(({ document, path, anchor }) => {
      if (!anchor) return false;
      const headings = readFileSync(join(ROOT, path || document), 'utf8').matchAll(/^#+ (.*)$/gm);
      return ![...headings].some(([, heading]) => slugOf(heading!) === anchor);
    });
    expect(lost).toEqual([]);
  });
});

/** As npm and GitHub name the place of a heading. */
const slugOf = (heading: string) =>
  heading
    .toLowerCase()
    .replace(/[^\w\s-]/g, '')
    .replace(/\s/g, '-');
