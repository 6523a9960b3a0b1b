import { type Socket, connect } from 'node:net';
import { createInterface } from 'node:readline';
import type { Question, Reply } from './resource.js';

type Asked = Omit<Question, 'id' | 'worker'>;

/** The way of a worker to what the locks protect. No nemesis stands in this way. */
export class ResourceClient {
  readonly #worker: string;
  readonly #socket: Socket;
  readonly #open = new Map<number, (reply: Reply) => void>();
  #asked = 0;

  constructor(port: number, worker: string) {
    this.#worker = worker;
    this.#socket = connect({ port, host: '127.0.0.1', noDelay: true });
    createInterface({ input: this.#socket }).on('line', (line) => {
      const reply = JSON.parse(line) as Reply;
      this.#open.get(reply.id)?.(reply);
      this.#open.delete(reply.id);
    });
  }

  ask(asked: Asked): Promise<Reply> {
    const id = (this.#asked += 1);
    this.#socket.write(`${JSON.stringify({ ...asked, id, worker: this.#worker })}\n`);
    return new Promise((resolve) => this.#open.set(id, resolve));
  }

  close(): void {
    this.#socket.end();
  }
}
