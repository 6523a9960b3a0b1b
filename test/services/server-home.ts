import { chown, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { execa } from 'execa';
import { Guard } from './guard.js';

/** The system user a server runs as. */
export interface ServerUser {
  readonly uid: number;
  readonly gid: number;
}

interface ServerProcessOptions {
  readonly name: string;
  readonly stopSignal: NodeJS.Signals;
  /** @default the user we are */
  readonly user?: ServerUser | undefined;
}

const PREPARE_TIMEOUT_MS = 120_000;
/** Longer than any server here needs to obey. */
const STOP_TIMEOUT_MS = 10_000;

/** The folder of one server, and the guard over everything that runs in it. */
export class ServerHome {
  /** Without a folder from outside the home is a temporary one, which `close` removes. */
  static async open(server: ServerProcessOptions, dataDir: string | undefined): Promise<ServerHome> {
    const { name, stopSignal, user } = server;
    const isTemporary = dataDir === undefined;
    const folder = isTemporary ? await mkdtemp(join(tmpdir(), `lock-test-${name}-`)) : resolve(dataDir);
    if (user) await chown(folder, user.uid, user.gid);
    return new ServerHome(
      folder,
      server,
      new Guard({ stopSignal, folder: isTemporary ? folder : undefined }),
    );
  }

  readonly #server;
  readonly #guard;

  private constructor(
    readonly dataDir: string,
    server: ServerProcessOptions,
    guard: Guard,
  ) {
    this.#server = server;
    this.#guard = guard;
  }

  /** Runs a command that prepares the folder, to its end. */
  async run(file: string, args: readonly string[], input = ''): Promise<void> {
    const preparation = execa(file, args, { ...this.#common(), input, timeout: PREPARE_TIMEOUT_MS });
    this.#watch(preparation.pid);
    await preparation;
    this.#guard.unwatch();
  }

  /** Starts the server; its own session keeps a Ctrl-C meant for the tests away from it. */
  launch(file: string, args: readonly string[], env: Readonly<Record<string, string>> = {}) {
    const server = execa(file, args, {
      ...this.#common(),
      env,
      stdin: 'ignore',
      all: true,
      buffer: false,
      reject: false,
      killSignal: this.#server.stopSignal,
      forceKillAfterDelay: STOP_TIMEOUT_MS,
    });
    this.#watch(server.pid);
    server.once('exit', () => this.#guard.unwatch());
    return server;
  }

  async close(): Promise<void> {
    await this.#guard.close();
  }

  #common() {
    // The folder we were started in may be closed to the server's user.
    return { cwd: this.dataDir, detached: true, ...this.#server.user } as const;
  }

  #watch(pid: number | undefined): void {
    if (pid !== undefined) this.#guard.watch(pid);
  }
}
