import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url));

interface Import {
  /** From the root of the repository. */
  readonly from: string;
  /** A file of ours, from the root of the repository, or the name of a package. */
  readonly to: string;
  readonly isOurs: boolean;
}

/** The TypeScript files below a folder of the repository. */
export const filesIn = (folder: string): string[] =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => join(folder, name))
    .sort();

/** Everything that a file imports or re-exports. */
export function importsOf(file: string): Import[] {
  const source = ts.createSourceFile(file, readFileSync(join(ROOT, file), 'utf8'), ts.ScriptTarget.Latest);
  return source.statements.flatMap((statement) => {
    if (!ts.isImportDeclaration(statement) && !ts.isExportDeclaration(statement)) return [];
    if (!statement.moduleSpecifier || !ts.isStringLiteral(statement.moduleSpecifier)) return [];
    const { text } = statement.moduleSpecifier;
    const isOurs = text.startsWith('.');
    const to = isOurs ? relative('.', join(dirname(file), text)).replace(/\.js$/, '.ts') : text;
    return [{ from: file, to, isOurs }];
  });
}
