import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';
import { ROOT } from '../../house/sources.js';

/** What a user reads: the README and all guides. */
export const DOCUMENTS: readonly string[] = [
  'README.md',
  ...readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => join('docs', name))
    .sort(),
];

/** The first TypeScript block of these documents that declares a class or a function of this name, as printed. */
export function blockThatDeclares(name: string, documents: readonly string[] = DOCUMENTS): string {
  for (const document of documents) {
    const text = readFileSync(join(ROOT, document), 'utf8');
    const blocks = [...text.matchAll(/^```ts\n([\s\S]*?)^```/gm)].map(([, code]) => code!);
    const block = blocks.find((code) => namesDeclaredIn(code).includes(name));
    if (block !== undefined) return block;
  }
  throw new Error(
    `Expected a TypeScript block that declares ${name} in ${documents.join(', ')}. If the recipe was renamed, rename ` +
      'it in test/faults/recipes/recipes.ts too.',
  );
}

const namesDeclaredIn = (code: string): string[] =>
  ts
    .createSourceFile('block.ts', code, ts.ScriptTarget.Latest)
    .statements.flatMap((statement) =>
      ts.isClassDeclaration(statement) || ts.isFunctionDeclaration(statement)
        ? (statement.name?.text ?? [])
        : [],
    );
