import { Redis } from 'ioredis';

/** The CPU time that a Redis server uses, by its own statistics. */
export class RedisCpu {
  readonly #client: Redis;
  readonly #startMs: number;

  private constructor(client: Redis, startMs: number) {
    this.#client = client;
    this.#startMs = startMs;
  }

  /** Starts to measure. */
  static async since(url: string): Promise<RedisCpu> {
    const client = new Redis(url);
    return new RedisCpu(client, await readMs(client));
  }

  /** Ends the measurement. */
  async spentMs(): Promise<number> {
    const spentMs = (await readMs(this.#client)) - this.#startMs;
    this.#client.disconnect();
    return spentMs;
  }
}

/** Of the thread that runs commands. */
async function readMs(client: Redis): Promise<number> {
  const statistics = await client.info('cpu');
  const seconds = [...statistics.matchAll(/^used_cpu_(?:user|sys)_main_thread:([\d.]+)/gm)].map(([, text]) =>
    Number(text),
  );
  return seconds.reduce((sum, one) => sum + one, 0) * 1e3;
}
