import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { execaNode } from 'execa';
import ts from 'typescript';
import { toJavaScript } from '../support/compiled-code.js';
import { DOCUMENTS, blocksIn, readDocument } from './documents.js';
import { ROOT } from './sources.js';

// The compiler and the examples take long on a busy machine.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

const LONGEST_README = 250;
/** With the documents of the folder `docs/`. */
const TEXTS = [...DOCUMENTS, 'CHANGELOG.md', 'CONTRIBUTING.md', 'SECURITY.md'];

/** Inside the package, so that the examples can import it by its name. */
const folder = join(ROOT, 'dist/docs-examples');
const examples = DOCUMENTS.flatMap((document) =>
  blocksIn(document, 'ts').map((code, index) => {
    const name = `${document} ${index + 1}`;
    return { code, file: join(folder, `${name.replace(/\W+/g, '-')}.ts`) };
  }),
);

rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
for (const { file, code } of examples) {
  writeFileSync(file, code);
  // As in an application that the Nest CLI 11 creates, where a file has no `await` outside of functions.
  writeFileSync(commonJsOf(file), code);
}
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('the examples of the README and of docs/', () => {
  it('are there', () => {
    expect(examples.length).toBeGreaterThanOrEqual(30);
  });

  it.each([
    { resolution: 'nodenext', formats: 'ES modules and CommonJS' },
    { resolution: 'bundler', formats: 'ES modules' },
  ])('compile as $formats with the module resolution $resolution', ({ resolution, formats }) => {
    const sources = examples.flatMap(({ file }) =>
      formats === 'ES modules' ? [file] : [file, commonJsOf(file)],
    );
    const { options } = ts.convertCompilerOptionsFromJson(
      {
        target: 'es2022',
        module: resolution === 'nodenext' ? 'nodenext' : 'esnext',
        moduleResolution: resolution,
        lib: ['es2023', 'esnext.disposable'],
        types: ['node', 'vitest/globals'],
        strict: true,
        experimentalDecorators: true,
        emitDecoratorMetadata: true,
        skipLibCheck: false,
        noEmit: true,
      },
      ROOT,
    );
    const program = ts.createProgram(sources, options);
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
    expect(files.map(({ fileName }) => fileName)).toEqual(expect.arrayContaining(sources));
    // `<T>` before an arrow function is refused for the name `.cts` alone.
    const found = ours.filter(({ code }) => code !== 7060);
    expect(found.map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n'))).toEqual([]);
  });

  // In one process, since most of the time is that of loading Nest. A failure names its file or its test.
  it('run as JavaScript', async () => {
    const codeOf = (file: string) => file.replace(/\.ts$/, '.js');
    for (const { file, code } of examples) writeFileSync(codeOf(file), await toJavaScript(code, file));
    const all = join(folder, 'all.mjs');
    const imports = examples.map(({ file }) => `await import('${codeOf(file)}');\n`);
    writeFileSync(
      all,
      `import { expect } from 'expect';
      const tests = [];
      Object.assign(globalThis, { expect, it: (name, run) => tests.push({ name, run }) });
      ${imports.join('')}
      for (const { name, run } of tests) {
        console.error(name);
        await run();
      }
      console.log('reached the end');`,
    );
    const { stdout } = await execaNode(all, { cwd: ROOT, nodeOptions: ['--no-warnings'] });
    expect(stdout).toContain('reached the end');
  });
});

describe('the parts of examples', () => {
  const parts = DOCUMENTS.flatMap((document) => blocksIn(document, 'js').map((code) => ({ document, code })));

  it.each(parts)('parse: a block of $document', async ({ document, code }) => {
    await toJavaScript(code, document);
  });
});

describe('the README', () => {
  it(`has at most ${LONGEST_README} lines`, () => {
    expect(readDocument('README.md').trimEnd().split('\n').length).toBeLessThanOrEqual(LONGEST_README);
  });
});

describe('the commands of the README and of docs/', () => {
  it('are those of the manifest', () => {
    const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { scripts: object };
    const named = TEXTS.flatMap((document) =>
      [...readDocument(document).matchAll(/npm run ([\w:-]+)/g)].map(([, script]) => script),
    );
    expect(Object.keys(scripts)).toEqual(expect.arrayContaining(named));
  });
});

describe('the links of what comes with the package', () => {
  const { files } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { files: string[] };
  const links = TEXTS.flatMap((document) =>
    [...readDocument(document).matchAll(/\]\((?!https?:)([^)\s]+)\)/g)].map(([, to]) => {
      const [path = '', anchor = ''] = to!.split('#');
      return { document, path: path && join(dirname(document), path), anchor };
    }),
  );

  const [excluded, included] = [true, false].map((isExcluded) =>
    files.filter((file) => file.startsWith('!') === isExcluded).map((file) => file.replace('!', '')),
  ) as [string[], string[]];
  const isShipped = (path: string) =>
    path === 'README.md' ||
    (included.some((file) => isInside(path, file)) && !excluded.some((file) => isInside(path, file)));

  it('lead to files in it, but for pictures, which only the repository has', () => {
    const outside = links.filter(({ path }) => path && !isShipped(path));
    expect(outside.filter(({ path }) => !path.endsWith('.png'))).toEqual([]);
    expect(links.filter(({ path }) => path && !existsSync(join(ROOT, path)))).toEqual([]);
  });

  it('lead to every document', () => {
    const linked = links.filter(({ document, path }) => path !== document).map(({ path }) => path);
    expect(DOCUMENTS.filter((document) => document !== 'README.md')).toEqual(
      DOCUMENTS.filter((document) => linked.includes(document) && document !== 'README.md'),
    );
  });

  it('lead to headings that are there', () => {
    const lost = links.filter(({ document, path, anchor }) => {
      if (!anchor) return false;
      const headings = readDocument(path || document).matchAll(/^#+ (.*)$/gm);
      return ![...headings].some(([, heading]) => slugOf(heading!) === anchor);
    });
    expect(lost).toEqual([]);
  });
});

describe('the pitfalls', () => {
  const files = ['test', 'lib', 'docs'].flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' }).map((name) => join(folder, name)),
  );
  const rows = readDocument('docs/pitfalls.md').matchAll(/^\|.*\|([^|]*)\|$/gm);
  const named = [...rows].flatMap(([, heldBy]) =>
    [...heldBy!.matchAll(/`([\w*./-]+\/[\w*./-]+)`/g)].map(([, name]) => name!),
  );

  it('name specs and files that are there', () => {
    const lost = named.filter((name) => {
      const path = name.replaceAll('.', '\\.').replaceAll('*', '[^/]*');
      return !files.some((file) => new RegExp(`(^|/)${path}(\\.spec)?(\\.\\w+)?$`).test(file));
    });
    expect(named.length).toBeGreaterThan(50);
    expect(lost).toEqual([]);
  });
});

/** Whether a path is that of a file of the manifest, which may contain `*`, or in that folder. */
function isInside(path: string, file: string): boolean {
  const pattern = file.replaceAll('.', '\\.').replaceAll('*', '[^/]*');
  return new RegExp(`^${pattern}(/|$)`).test(path);
}

function commonJsOf(file: string): string {
  return file.replace(/\.ts$/, '.cts');
}

/** As npm and GitHub name the place of a heading. */
const slugOf = (heading: string) =>
  heading
    .toLowerCase()
    .replace(/[^\w\s-]/g, '')
    .replace(/\s/g, '-');
