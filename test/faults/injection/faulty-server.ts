import { setTimeout as sleep } from 'node:timers/promises';
import { startRedisQuorum } from '../../services/redis-quorum.js';
import { startRedis } from '../../services/redis-server.js';
import type { Service } from '../../services/service.js';
import { type SlowProxy, slowProxy } from './slow-proxy.js';

export const FAULTS = ['killed', 'frozen', 'slow'] as const;
type ServerFault = (typeof FAULTS)[number];

const SLOW_MS = 150;

/** A server of a quorum that can be hurt and mended, behind an address that stays. */
export class FaultyServer {
  readonly #args: readonly string[];
  readonly #proxy: SlowProxy;
  readonly #all: Service[];
  #fault: ServerFault | undefined;

  private constructor(server: Service, proxy: SlowProxy, args: readonly string[]) {
    this.#all = [server];
    this.#proxy = proxy;
    this.#args = args;
  }

  static async start(args: readonly string[]): Promise<FaultyServer> {
    const [server] = (await startRedisQuorum(1, args)) as [Service];
    return new FaultyServer(server, await slowProxy(server.port), args);
  }

  get url(): string {
    return `redis://127.0.0.1:${this.#proxy.port}`;
  }

  async injectFault(fault: ServerFault): Promise<void> {
    this.#fault = fault;
    const server = this.#all.at(-1)!;
    if (fault === 'slow') this.#proxy.delayMs = SLOW_MS;
    else server.kill(fault === 'killed' ? 'SIGKILL' : 'SIGSTOP');
    if (fault === 'killed') await server.exited;
  }

  async heal(): Promise<void> {
    const server = this.#all.at(-1)!;
    if (this.#fault === 'slow') this.#proxy.delayMs = 0;
    if (this.#fault === 'frozen') server.kill('SIGCONT');
    if (this.#fault === 'killed') {
      const { port, dataDir } = server;
      this.#all.push(await startRedis({ port, dataDir, args: this.#args }));
    }
    this.#fault = undefined;
  }

  async stop(): Promise<void> {
    for (const server of this.#all.reverse()) await server.stop();
    await this.#proxy.close();
  }
}

/** Some of the list, in random order. */
export function pickSome<T>(list: readonly T[], count: number): T[] {
  const rest = [...list];
  return Array.from({ length: count }, () => rest.splice(Math.floor(Math.random() * rest.length), 1)[0]!);
}

/** Hurts some for a while, all in the same way or each in its own. */
export async function withFaults(
  servers: readonly FaultyServer[],
  { faults, forMs }: { readonly faults: readonly ServerFault[]; readonly forMs: number },
): Promise<void> {
  await Promise.all(servers.map((server, index) => server.injectFault(faults[index]!)));
  await sleep(forMs);
  await Promise.all(servers.map((server) => server.heal()));
}
