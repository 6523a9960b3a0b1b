import { type AddressInfo, type Server, type Socket, connect, createServer } from 'node:net';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';

/** `up`: from the client to the server. */
type Direction = 'up' | 'down';

/** What happens to bytes: they pass, wait until the network is healed, or are gone. */
type TrafficAction = 'pass' | 'hold' | 'drop';

/** How a network behaves. */
export interface NetworkConditions {
  readonly up: TrafficAction;
  readonly down: TrafficAction;
  /** Added to each piece, in each direction. */
  readonly delayMs: () => number;
  /** Who connects is reset. */
  readonly refuses: boolean;
  /** The next request of each connection is cut: in its middle, or when the server has answered it. */
  readonly cuts: 'request' | 'reply' | undefined;
  /** Whether this request and what follows it on its connection are held, until the network is healed. */
  readonly holdsFrom: (request: Buffer) => boolean;
}

const HEALTHY: NetworkConditions = {
  up: 'pass',
  down: 'pass',
  delayMs: () => 0,
  refuses: false,
  cuts: undefined,
  holdsFrom: () => false,
};

/** The network between one client process and one server, as bad as a test wants it. */
export class FaultProxy {
  readonly #server: Server;
  readonly #connections = new Set<ProxiedConnection>();
  #conditions = HEALTHY;
  #changeListeners: (() => void)[] = [];

  private constructor(readonly targetPort: number) {
    this.#server = createServer({ pauseOnConnect: true }, (client) => this.#accept(client));
  }

  static async to(targetPort: number): Promise<FaultProxy> {
    const proxy = new FaultProxy(targetPort);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get conditions(): NetworkConditions {
    return this.#conditions;
  }

  get isHealthy(): boolean {
    return this.#conditions === HEALTHY;
  }

  get hasConnections(): boolean {
    return this.#connections.size > 0;
  }

  /** Bytes of a connection that stands are gone. */
  get hasGaps(): boolean {
    return [...this.#connections].some(({ hasGaps }) => hasGaps);
  }

  setConditions(conditions: Partial<NetworkConditions>): void {
    this.#conditions = { ...HEALTHY, ...conditions };
  }

  /** What was held goes on; a connection of which bytes are gone is reset. */
  heal(): void {
    this.#conditions = HEALTHY;
    for (const connection of this.#connections) connection.onHealed();
    for (const listener of this.#changeListeners.splice(0)) listener();
  }

  /** Ends all connections, as a router does that was restarted. */
  resetAll(): void {
    for (const connection of this.#connections) connection.reset();
  }

  /** The server hears that its clients have gone, and they do not hear anything more. */
  halfOpen(): void {
    for (const connection of this.#connections) connection.loseServer();
  }

  /** Settles when the weather may have changed. */
  waitForChange(): Promise<void> {
    return new Promise((resolve) => this.#changeListeners.push(resolve));
  }

  async close(): Promise<void> {
    this.heal();
    this.resetAll();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #accept(client: Socket): void {
    if (this.#conditions.refuses) {
      client.on('error', () => undefined);
      client.resetAndDestroy();
      return;
    }
    const connection = new ProxiedConnection(client, this);
    this.#connections.add(connection);
    connection.onClosed(() => this.#connections.delete(connection));
  }
}

/** One connection through the proxy. */
class ProxiedConnection {
  /** Bytes of it are gone. */
  hasGaps = false;
  readonly #client: Socket;
  readonly #server: Socket;
  readonly #proxy: FaultProxy;
  #isCutAtReply = false;
  #isHeld = false;

  constructor(client: Socket, proxy: FaultProxy) {
    this.#client = client;
    this.#proxy = proxy;
    this.#server = connect({ port: proxy.targetPort, host: '127.0.0.1', noDelay: true });
    client.setNoDelay(true);
    this.#forward('up', client, this.#server);
    this.#forward('down', this.#server, client);
    client.resume();
  }

  /** Tells it once, when both sides have ended. */
  onClosed(listener: () => void): void {
    this.#client.once('close', () => this.#server.closed && listener());
    this.#server.once('close', () => this.#client.closed && listener());
  }

  onHealed(): void {
    this.#isHeld = false;
    if (this.hasGaps) this.reset();
  }

  reset(): void {
    this.#client.resetAndDestroy();
    this.#server.resetAndDestroy();
  }

  loseServer(): void {
    this.hasGaps = true;
    this.#server.destroy();
  }

  /** Everything in the order in which it came, also the end. */
  #forward(direction: Direction, from: Socket, to: Socket): void {
    let last = Promise.resolve();
    const next = (step: () => void) => {
      const dueMs = performance.now() + this.#proxy.conditions.delayMs();
      last = last.then(() => this.#waitUntilDue(direction, dueMs)).then(step);
    };
    from.on('data', (bytes) => {
      if (direction === 'up' && this.#proxy.conditions.holdsFrom(bytes)) this.#isHeld = true;
      next(() => this.#deliver(direction, bytes, to));
    });
    from.on('end', () => next(() => !this.hasGaps && to.end()));
    // Who is reset by the other side is so as well; what was lost on purpose stays silent.
    from.on('error', () => next(() => !this.hasGaps && to.resetAndDestroy()));
    from.on('close', () => next(() => !this.hasGaps && to.destroySoon()));
  }

  async #waitUntilDue(direction: Direction, dueMs: number): Promise<void> {
    const leftMs = dueMs - performance.now();
    if (leftMs > 0) await sleep(leftMs);
    while (this.#isHeldNow(direction)) await this.#proxy.waitForChange();
  }

  #isHeldNow(direction: Direction): boolean {
    return this.#proxy.conditions[direction] === 'hold' || (direction === 'up' && this.#isHeld);
  }

  #deliver(direction: Direction, bytes: Buffer, to: Socket): void {
    const { conditions } = this.#proxy;
    if (conditions[direction] === 'drop') this.hasGaps = true;
    if (this.hasGaps || !to.writable) return;
    if (direction === 'up' && conditions.cuts === 'request') {
      to.write(bytes.subarray(0, Math.floor(bytes.length / 2)), () => this.reset());
      return;
    }
    if (direction === 'up' && conditions.cuts === 'reply') this.#isCutAtReply = true;
    if (direction === 'down' && this.#isCutAtReply) this.reset();
    else to.write(bytes);
  }
}
