import ts from 'typescript';
import { DOCUMENTS, blocksIn } from '../../structure/documents.js';

/** The first TypeScript block of these documents that declares a class or a function of this name, as printed. */
export function blockThatDeclares(name: string, documents: readonly string[] = DOCUMENTS): string {
  for (const document of documents) {
    const block = blocksIn(document, 'ts').find((code) => namesDeclaredIn(code).includes(name));
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
