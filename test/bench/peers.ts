import { createRequire } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { execa } from 'execa';

const home = fileURLToPath(new URL('peers', import.meta.url));
const requirePeer = createRequire(new URL('peers/package.json', import.meta.url));

/** Installs the peers where some are missing. They have no part in the installation of the library. */
export async function ensurePeers(): Promise<void> {
  const { failed } = await execa('npm', ['ls', '--depth=0'], { cwd: home, reject: false });
  if (!failed) return;
  process.stderr.write('Installing the peers, for the bench\n');
  await execa('npm', ['ci', '--ignore-scripts', '--prefix', home], { cwd: home });
}

/**
 * A CommonJS package among the peers. Its types are not there when this code is checked, so the caller names what he
 * uses of it.
 */
// eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters
export const peer = <Used>(name: string): Used => requirePeer(name) as Used;

/** The same for a package that is an ES module. */
export const modernPeer = async <Used>(name: string): Promise<Used> =>
  (await import(pathToFileURL(requirePeer.resolve(name)).href)) as Used;

/** What we use of Nest, in the version that the peers work with. */
interface Nest {
  readonly NestFactory: {
    createApplicationContext(module: unknown, options: { logger: false }): Promise<NestContext>;
  };
}

interface NestContext {
  get(token: unknown): unknown;
  close(): Promise<void>;
}

/** An application with one module of a peer. */
export function nestWith(module: unknown): Promise<NestContext> {
  peer('reflect-metadata');
  return peer<Nest>('@nestjs/core').NestFactory.createApplicationContext(module, { logger: false });
}
