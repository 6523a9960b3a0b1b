import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';

/** A folder for the files of one spec, removed at its end. */
export function tempFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'distributed-lock-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
