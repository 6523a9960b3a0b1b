import { type Socket, connect } from 'node:net';
import { createInterface } from 'node:readline';
import type { ResourceRequest, ResourceReply } from './resource.js';

type NewRequest = Omit<ResourceRequest, 'id' | 'worker'>;

/** The way of a worker to what the locks protect. No nemesis stands in this way. */
export class ResourceClient {
  readonly #worker: string;
  readonly #socket: Socket;
  readonly #pending = new Map<number, (reply: ResourceReply) => void>();
  #requestCount = 0;

  constructor(port: number, worker: string) {
    this.#worker = worker;
    this.#socket = connect({ port, host: '127.0.0.1', noDelay: true });
    createInterface({ input: this.#socket }).on('line', (line) => {
      const reply = JSON.parse(line) as ResourceReply;
      this.#pending.get(reply.id)?.(reply);
      this.#pending.delete(reply.id);
    });
  }

  send(request: NewRequest): Promise<ResourceReply> {
    const id = (this.#requestCount += 1);
    this.#socket.write(`${JSON.stringify({ ...request, id, worker: this.#worker })}\n`);
    return new Promise((resolve) => this.#pending.set(id, resolve));
  }

  close(): void {
    this.#socket.end();
  }
}
