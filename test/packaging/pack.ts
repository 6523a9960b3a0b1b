import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';

/** Packs the built package as npm would publish it; answers the tarball. */
export async function pack(root: string, folder: string): Promise<string> {
  const args = ['pack', '--json', '--ignore-scripts', '--pack-destination', folder];
  const { stdout } = await execa('npm', args, { cwd: root });
  const [packed] = JSON.parse(stdout) as [{ filename: string }];
  return join(folder, packed.filename);
}

/** Puts the package into the `node_modules` of an application, without what it depends on. */
export async function unpack(tarball: string, application: string): Promise<string> {
  const place = join(application, 'node_modules/nestjs-distributed-lock');
  await mkdir(place, { recursive: true });
  await execa('tar', ['-xzf', tarball, '-C', place, '--strip-components=1']);
  return place;
}
