import { type AddressInfo, type Server, type Socket, connect, createServer } from 'node:net';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';

/** `up`: from the client to the server. */
type Direction = 'up' | 'down';

/** What happens to bytes: they pass, wait until the network is healed, or are gone. */
type Fate = 'pass' | 'hold' | 'drop';

/** How a network behaves. */
export interface Weather {
  readonly up: Fate;
  readonly down: Fate;
  /** Added to each piece, in each direction. */
  readonly delayMs: () => number;
  /** Who connects is reset. */
  readonly refuses: boolean;
  /** The next request of each connection is cut: in its middle, or when the server has answered it. */
  readonly cuts: 'request' | 'reply' | undefined;
}

const FAIR: Weather = { up: 'pass', down: 'pass', delayMs: () => 0, refuses: false, cuts: undefined };

/** The network between one client process and one server, as bad as a test wants it. */
export class Proxy {
  readonly #server: Server;
  readonly #links = new Set<Link>();
  #weather = FAIR;
  #cleared: (() => void)[] = [];

  private constructor(readonly targetPort: number) {
    this.#server = createServer({ pauseOnConnect: true }, (client) => this.#accept(client));
  }

  static async to(targetPort: number): Promise<Proxy> {
    const proxy = new Proxy(targetPort);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get weather(): Weather {
    return this.#weather;
  }

  get isFair(): boolean {
    return this.#weather === FAIR;
  }

  /** Bytes of a connection that stands are gone. */
  get hasGaps(): boolean {
    return [...this.#links].some(({ hasGaps }) => hasGaps);
  }

  turn(weather: Partial<Weather>): void {
    this.#weather = { ...FAIR, ...weather };
  }

  /** What was held goes on; a connection of which bytes are gone is reset. */
  heal(): void {
    this.#weather = FAIR;
    for (const link of this.#links) if (link.hasGaps) link.reset();
    for (const goOn of this.#cleared.splice(0)) goOn();
  }

  /** Ends all connections, as a router does that was restarted. */
  resetAll(): void {
    for (const link of this.#links) link.reset();
  }

  /** The server hears that its clients have gone, and they do not hear anything more. */
  halfOpen(): void {
    for (const link of this.#links) link.loseServer();
  }

  /** Settles when the weather may have changed. */
  change(): Promise<void> {
    return new Promise((resolve) => this.#cleared.push(resolve));
  }

  async close(): Promise<void> {
    this.heal();
    this.resetAll();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #accept(client: Socket): void {
    if (this.#weather.refuses) {
      client.on('error', () => undefined);
      client.resetAndDestroy();
      return;
    }
    const link = new Link(client, this);
    this.#links.add(link);
    link.whenClosed(() => this.#links.delete(link));
  }
}

/** One connection through the proxy. */
class Link {
  /** Bytes of it are gone. */
  hasGaps = false;
  readonly #client: Socket;
  readonly #server: Socket;
  readonly #proxy: Proxy;
  #isCutAtReply = false;

  constructor(client: Socket, proxy: Proxy) {
    this.#client = client;
    this.#proxy = proxy;
    this.#server = connect({ port: proxy.targetPort, host: '127.0.0.1', noDelay: true });
    client.setNoDelay(true);
    this.#carry('up', client, this.#server);
    this.#carry('down', this.#server, client);
    client.resume();
  }

  /** Tells it once, when both sides have ended. */
  whenClosed(tell: () => void): void {
    this.#client.once('close', () => this.#server.closed && tell());
    this.#server.once('close', () => this.#client.closed && tell());
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
  #carry(direction: Direction, from: Socket, to: Socket): void {
    let last = Promise.resolve();
    const next = (step: () => void) => {
      const dueMs = performance.now() + this.#proxy.weather.delayMs();
      last = last.then(() => this.#passage(direction, dueMs)).then(step);
    };
    from.on('data', (bytes) => next(() => this.#pass(direction, bytes, to)));
    from.on('end', () => next(() => !this.hasGaps && to.end()));
    // Who is reset by the other side is so as well; what was lost on purpose stays silent.
    from.on('error', () => next(() => !this.hasGaps && to.resetAndDestroy()));
    from.on('close', () => next(() => !this.hasGaps && to.destroySoon()));
  }

  async #passage(direction: Direction, dueMs: number): Promise<void> {
    const leftMs = dueMs - performance.now();
    if (leftMs > 0) await sleep(leftMs);
    while (this.#proxy.weather[direction] === 'hold') await this.#proxy.change();
  }

  #pass(direction: Direction, bytes: Buffer, to: Socket): void {
    const { weather } = this.#proxy;
    if (weather[direction] === 'drop') this.hasGaps = true;
    if (this.hasGaps || !to.writable) return;
    if (direction === 'up' && weather.cuts === 'request') {
      to.write(bytes.subarray(0, Math.floor(bytes.length / 2)), () => this.reset());
      return;
    }
    if (direction === 'up' && weather.cuts === 'reply') this.#isCutAtReply = true;
    if (direction === 'down' && this.#isCutAtReply) this.reset();
    else to.write(bytes);
  }
}
