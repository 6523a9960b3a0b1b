import { access, constants, readdir } from 'node:fs/promises';
import { delimiter, join } from 'node:path';

const debianPostgres = '/usr/lib/postgresql';

/**
 * The full path of a program on PATH, or where Debian keeps servers off the PATH; undefined when it is nowhere. What has a full
 * path already is a file for another program, such as Java.
 */
export async function findProgram(name: string): Promise<string | undefined> {
  if (name.startsWith('/')) return (await can(constants.R_OK, name)) ? name : undefined;
  const paths = [...pathFolders(), '/usr/local/sbin', '/usr/sbin', ...(await postgresFolders())].map(
    (folder) => join(folder, name),
  );
  const isExecutable = await Promise.all(paths.map((path) => can(constants.X_OK, path)));
  return paths.find((_, index) => isExecutable[index]);
}

function pathFolders(): string[] {
  return (process.env['PATH'] ?? '').split(delimiter).filter((folder) => folder !== '');
}

/** Newest version first. */
async function postgresFolders(): Promise<string[]> {
  const versions = await readdir(debianPostgres).catch(() => []);
  return versions
    .sort((a, b) => Number(b) - Number(a))
    .map((version) => join(debianPostgres, version, 'bin'));
}

function can(mode: number, path: string): Promise<boolean> {
  return access(path, mode).then(
    () => true,
    () => false,
  );
}
