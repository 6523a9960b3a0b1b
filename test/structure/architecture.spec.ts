import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { blocksIn, readDocument } from './documents.js';
import { drawLayers } from './layers.js';
import { ROOT, filesIn } from './sources.js';

const DOCUMENT = 'docs/architecture.md';

/** What stands in backticks. */
const quotedIn = (text: string): string[] =>
  [...text.matchAll(/(?<!`)`([^`\n]+)`/g)].map(([, quoted]) => quoted!);

describe('the architecture', () => {
  it('has the picture that test/structure/draw-layers.ts prints', () => {
    expect(blocksIn(DOCUMENT, 'mermaid')).toEqual([drawLayers()]);
  });

  it.each([
    { document: DOCUMENT, least: 150 },
    { document: 'CONTRIBUTING.md', least: 20 },
  ])('$document names files and folders that are there', ({ document, least }) => {
    const named = quotedIn(readDocument(document)).filter((quoted) => /^[\w-]+\//.test(quoted));
    expect(named.length).toBeGreaterThan(least);
    expect(named.filter((name) => !existsSync(join(ROOT, name)))).toEqual([]);
  });

  it('says of each folder of lib/ what is in it', () => {
    const folders = new Set(filesIn('lib').map((file) => `${dirname(file)}/`));
    const quoted = new Set(quotedIn(readDocument(DOCUMENT)));
    expect([...folders].filter((folder) => !quoted.has(folder))).toEqual([]);
  });

  it('names what stands in the file to open', () => {
    const table = readDocument(DOCUMENT)
      .split(/^## /m)
      .find((section) => section.startsWith('To change'));
    const rows = [...table!.matchAll(/^\|[^|]*\| `([^`]+)` *\|([^|]*)\|$/gm)];
    const lost = rows.flatMap(([, file, names]) => {
      const code = readFileSync(join(ROOT, file!), 'utf8');
      return quotedIn(names!).filter((name) => !code.includes(name));
    });
    const rowCount = table!.split('\n').filter((line) => /^\s*\|[^|]*\| `/.test(line)).length;
    expect(rowCount).toBeGreaterThan(90);
    expect(rows).toHaveLength(rowCount);
    expect(lost).toEqual([]);
  });
});
