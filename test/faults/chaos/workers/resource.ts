import { type AddressInfo, type Server, type Socket, createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { once } from 'node:events';
import { FencedRegister } from '../../../support/fencing/fenced-register.js';
import { machineMs } from '../../../support/machine-clock.js';
import type { Attempt } from '../checkers/fenced-register.js';
import type { ListName } from './history.js';

/** A question of a worker, one line of JSON. `unfenced` asks for the list that takes everything from everybody. */
export interface ResourceRequest {
  readonly id: number;
  readonly worker: string;
  readonly op: string;
  readonly key: string;
  readonly list: ListName;
  readonly fencingToken: string;
  /** To be written; without them the list is read. */
  readonly items?: readonly string[];
}

export interface ResourceReply {
  readonly id: number;
  readonly wasAccepted: boolean;
  readonly items: readonly string[];
}

/**
 * What is protected by the locks: two lists for each key, of which one refuses whoever comes with an older fencing token
 * than the newest seen. Also a reading says which token is the newest, so that nobody can write what an older one has read.
 */
export class Resource {
  readonly attempts: Attempt[] = [];
  readonly fenced = new Map<string, readonly string[]>();
  readonly unfenced = new Map<string, readonly string[]>();
  readonly #registers = new Map<string, FencedRegister>();
  readonly #lastWrites = new Map<string, number>();
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor() {
    this.#server = createServer((socket) => this.#serve(socket));
  }

  static async open(): Promise<Resource> {
    const resource = new Resource();
    resource.#server.listen(0, '127.0.0.1');
    await once(resource.#server, 'listening');
    return resource;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** When a worker last came with a lock. */
  lastWriteAtMs(worker: string): number {
    return this.#lastWrites.get(worker) ?? -Infinity;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket);
    socket.setNoDelay(true);
    socket.on('error', () => socket.destroy());
    socket.once('close', () => this.#sockets.delete(socket));
    const lines = createInterface({ input: socket });
    lines.on('error', () => undefined); // It passes on that a worker was killed.
    lines.on('line', (line) => {
      const reply = this.#handle(JSON.parse(line) as ResourceRequest);
      if (socket.writable) socket.write(`${JSON.stringify(reply)}\n`);
    });
  }

  #handle({ id, worker, op, key, list, fencingToken, items }: ResourceRequest): ResourceReply {
    const atMs = machineMs();
    const lists = this[list];
    const before = lists.get(key) ?? [];
    if (list === 'fenced') {
      const wasAccepted = this.#register(key).write(BigInt(fencingToken));
      const verb = items ? 'write' : 'read';
      this.attempts.push({ key, op, verb, fencingToken: BigInt(fencingToken), wasAccepted, atMs });
      if (!wasAccepted) return { id, wasAccepted, items: [] };
      if (items) this.#lastWrites.set(worker, atMs);
    }
    if (items) lists.set(key, items);
    return { id, wasAccepted: true, items: before };
  }

  #register(key: string): FencedRegister {
    const known = this.#registers.get(key);
    if (known) return known;
    const register = new FencedRegister();
    this.#registers.set(key, register);
    return register;
  }
}
