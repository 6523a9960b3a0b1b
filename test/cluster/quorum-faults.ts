import { setTimeout as sleep } from 'node:timers/promises';
import { startRedisQuorum } from '../services/redis-quorum.js';
import { startRedis } from '../services/redis-server.js';
import type { Service } from '../services/service.js';
import { type SlowProxy, slowProxy } from '../services/slow-proxy.js';

export const FAULTS = ['killed', 'frozen', 'slow'] as const;
type Fault = (typeof FAULTS)[number];

const SLOW_MS = 150;

/** A server of a quorum that can be hurt and mended, behind an address that stays. */
export class Patient {
  readonly #args: readonly string[];
  readonly #proxy: SlowProxy;
  readonly #all: Service[];
  #fault: Fault | undefined;

  private constructor(server: Service, proxy: SlowProxy, args: readonly string[]) {
    this.#all = [server];
    this.#proxy = proxy;
    this.#args = args;
  }

  static async start(args: readonly string[]): Promise<Patient> {
    const [server] = (await startRedisQuorum(1, args)) as [Service];
    return new Patient(server, await slowProxy(server.port), args);
  }

  get url(): string {
    return `redis://127.0.0.1:${this.#proxy.port}`;
  }

  async hurt(fault: Fault): Promise<void> {
    this.#fault = fault;
    const server = this.#all.at(-1)!;
    if (fault === 'slow') this.#proxy.delayMs = SLOW_MS;
    else server.kill(fault === 'killed' ? 'SIGKILL' : 'SIGSTOP');
    if (fault === 'killed') await server.exited;
  }

  async mend(): Promise<void> {
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
export function someOf<T>(list: readonly T[], count: number): T[] {
  const rest = [...list];
  return Array.from({ length: count }, () => rest.splice(Math.floor(Math.random() * rest.length), 1)[0]!);
}

/** Hurts some for a while, all in the same way or each in its own. */
export async function during(
  patients: readonly Patient[],
  { faults, forMs }: { readonly faults: readonly Fault[]; readonly forMs: number },
): Promise<void> {
  await Promise.all(patients.map((patient, index) => patient.hurt(faults[index]!)));
  await sleep(forMs);
  await Promise.all(patients.map((patient) => patient.mend()));
}
