import { readFileSync } from 'node:fs';
import { LockConfigError } from '../core/errors.js';
import pageFolder from './page-folder.cjs';

export interface PageFiles {
  readonly html: string;
  readonly script: string;
  readonly style: string;
  readonly icon: string;
}

/** @throws LockConfigError if the files are missing, as in a bundle */
export function readPageFiles(): PageFiles {
  const read = (name: string) => readFileSync(`${pageFolder}/${name}`, 'utf8');
  try {
    return {
      html: read('board.html'),
      script: read('board.js'),
      style: read('board.css'),
      icon: read('board.svg'),
    };
  } catch (cause) {
    throw new LockConfigError(
      `Cannot read the page of LockBoardModule in ${pageFolder}. If the application is bundled, leave ` +
        `nestjs-distributed-lock and @nestjs/* out of the bundle (as external packages).`,
      { cause },
    );
  }
}

/**
 * The page for a request. Its links are relative to the path that the browser shows, so the page works below any prefix,
 * with and without a slash at the end.
 */
export function renderPage(html: string, url: string): string {
  const path = url.replace(/[?#].*$/s, '');
  const last = path.slice(path.lastIndexOf('/') + 1).replace(/[^\w.~%-]/g, encodeURIComponent);
  return html.replaceAll('{{base}}', last === '' ? '.' : `./${last}`);
}
