import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Arrival } from './history.js';

const ANSWER_AFTER_MS = 5;
const CONFLICT = 409;

/** What stands behind `https://queue.example`: accepts requests with a term, and refuses older ones. */
export class Queue {
  readonly url: string;
  readonly accepted: Arrival[] = [];
  refused = 0;
  #newest = 0n;
  readonly #server;

  private constructor(server: ReturnType<typeof createServer>) {
    this.#server = server;
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    server.on('request', ({ url = '', headers }, response) => {
      const term = BigInt(new URL(url, this.url).searchParams.get('term') ?? 0);
      response.statusCode = this.#accepts(Number(headers['x-worker']), term) ? 200 : CONFLICT;
      setTimeout(() => response.end(), ANSWER_AFTER_MS);
    });
  }

  static async open(): Promise<Queue> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new Queue(server);
  }

  #accepts(worker: number, term: bigint): boolean {
    if (term < this.#newest) {
      this.refused += 1;
      return false;
    }
    this.#newest = term;
    this.accepted.push({ worker, term });
    return true;
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}
