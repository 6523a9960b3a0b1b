import { DOCUMENTS, readDocument } from '../structure/documents.js';

/** A line `npm install …`, after the version of Nest for which its block is, if it is for one. */
const INSTALL = /(?:On NestJS (\d+):\s+```bash\n)?npm install ([^#`\n]+)/g;

/** The `npm install` lines of the README and the docs for one version of Nest, each once, in the order of the pages. */
export function installLines(nest: number): string[][] {
  const lines = DOCUMENTS.flatMap((document) => [...readDocument(document).matchAll(INSTALL)])
    .filter(([, version]) => version === undefined || Number(version) === nest)
    .map(([, , packages = '']) => packages.trim());
  return [...new Set(lines)].map((packages) => packages.split(/\s+/));
}
