import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

/** The `npm install` lines of the README and the docs for one version of Nest, in the order of the pages. */
export function installLines(root: string, nest: number): string[][] {
  const pages = [
    'README.md',
    ...readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' }).map(inDocs),
  ];
  return pages
    .filter((page) => page.endsWith('.md'))
    .flatMap((page) => [
      ...readFileSync(join(root, page), 'utf8').matchAll(/npm install ([^#`\n]+)(#[^\n]*)?/g),
    ])
    .filter(([, , comment = '']) => !/NestJS \d/.test(comment) || comment.includes(`NestJS ${nest}`))
    .map(([, packages = '']) => packages.trim().split(/\s+/));
}

const inDocs = (page: string) => `docs/${page}`;
