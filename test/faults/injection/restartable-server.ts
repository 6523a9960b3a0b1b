import { freeze, thaw } from './freeze.js';
import type { Service, ServiceOptions } from '../../services/service.js';

/** A server that can be killed, and started again with the same port and the same folder. */
export class RestartableServer {
  readonly #start: (options: ServiceOptions) => Promise<Service>;
  readonly #options: ServiceOptions;
  readonly #services: Service[] = [];

  private constructor(start: (options: ServiceOptions) => Promise<Service>, options: ServiceOptions) {
    this.#start = start;
    this.#options = options;
  }

  static async start(
    start: (options: ServiceOptions) => Promise<Service>,
    options: ServiceOptions,
  ): Promise<RestartableServer> {
    const server = new RestartableServer(start, options);
    server.#services.push(await start(options));
    return server;
  }

  /** The one that runs, or ran last. */
  get service(): Service {
    return this.#services.at(-1)!;
  }

  async kill(): Promise<void> {
    this.service.kill('SIGKILL');
    await this.service.exited;
  }

  async startAgain(): Promise<void> {
    const { port, dataDir } = this.service;
    // The first one owns the folder, so only those after it are let go.
    if (this.#services.length > 1) await this.#services.pop()?.stop();
    this.#services.push(await this.#start({ ...this.#options, port, dataDir }));
  }

  freeze(): Promise<void> {
    return freeze(this.service);
  }

  thaw(): void {
    thaw(this.service);
  }

  async close(): Promise<void> {
    for (const service of this.#services.reverse()) await service.stop();
  }
}
