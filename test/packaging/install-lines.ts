import { DOCUMENTS, readDocument } from '../house/documents.js';

/** The `npm install` lines of the README and the docs for one version of Nest, each once, in the order of the pages. */
export function installLines(nest: number): string[][] {
  const lines = DOCUMENTS.flatMap((document) => [
    ...readDocument(document).matchAll(/npm install ([^#`\n]+)(#[^\n]*)?/g),
  ])
    .filter(([, , comment = '']) => !/NestJS \d/.test(comment) || comment.includes(`NestJS ${nest}`))
    .map(([, packages = '']) => packages.trim());
  return [...new Set(lines)].map((packages) => packages.split(/\s+/));
}
