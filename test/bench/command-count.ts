import { Redis } from 'ioredis';
import type { Contender } from './contender.js';

/** Counts the commands that a contender's processes send, by what Redis tells of itself. */
export class CommandCount {
  readonly #client: Redis;
  readonly #commands: ReadonlySet<string>;
  #before = 0;

  constructor(url: string, { commands = [] }: Contender) {
    this.#client = new Redis(url);
    this.#commands = new Set(commands);
  }

  async start(): Promise<void> {
    this.#before = await this.#read();
  }

  async sinceStart(): Promise<number> {
    return (await this.#read()) - this.#before;
  }

  close(): void {
    this.#client.disconnect();
  }

  async #read(): Promise<number> {
    const statistics = await this.#client.info('commandstats');
    let count = 0;
    for (const [, command, calls] of statistics.matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm))
      if (this.#commands.has(command!)) count += Number(calls);
    return count;
  }
}
