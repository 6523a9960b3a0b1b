import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './sources.js';

/** What a user reads: the README and all of docs/, in the order in which examples are looked for. */
export const DOCUMENTS: readonly string[] = [
  'README.md',
  ...readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => join('docs', name))
    .sort(),
];

export const readDocument = (document: string): string => readFileSync(join(ROOT, document), 'utf8');

/** The blocks of code of one language in a document, as printed. */
export const blocksIn = (document: string, language: string): readonly string[] =>
  [...readDocument(document).matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\``, 'gm'))].map(
    ([, code]) => code!,
  );
