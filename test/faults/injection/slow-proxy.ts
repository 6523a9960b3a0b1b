import { once } from 'node:events';
import { type AddressInfo, type Socket, connect, createServer } from 'node:net';

export interface SlowProxy {
  readonly port: number;
  /** How long it keeps back what comes from now on, in each direction. */
  delayMs: number;
  /** Where it leads whoever comes from now on. */
  targetPort: number;
  /** While it is not, nobody is led anywhere. */
  isOpen: boolean;
  /** Lets the present connections go silently, as a NAT does: they stay open, and nothing comes through any more. */
  silence(): void;
  /** Answers what comes next over the present connections with a reset, as a load balancer does with those it has forgotten. */
  reset(): void;
  /** Ends all connections. */
  cut(): void;
  close(): Promise<void>;
}

/** Stands before a server of this machine, and can make the way there long. */
export async function slowProxy(targetPort: number): Promise<SlowProxy> {
  const sockets = new Set<Socket>();
  const silenced = new WeakSet<Socket>();
  const resets = new WeakSet<Socket>();
  const server = createServer((client) => {
    if (!proxy.isOpen) return client.destroy();
    const target = connect(proxy.targetPort, '127.0.0.1');
    for (const [from, to] of [
      [client, target],
      [target, client],
    ] as const) {
      sockets.add(from.setNoDelay(true));
      let dueMs = 0;
      from.on('data', (chunk) => {
        if (silenced.has(from)) return;
        if (resets.has(from)) return void from.resetAndDestroy();
        // What came first goes on first, also when the delay gets shorter.
        dueMs = Math.max(dueMs, performance.now() + proxy.delayMs);
        const waitMs = dueMs - performance.now();
        if (waitMs <= 0.5) to.write(chunk);
        else setTimeout(() => to.write(chunk), waitMs);
      });
      from.on('error', () => undefined);
      from.on('close', () => {
        sockets.delete(from);
        to.destroy();
      });
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  let isOpen = true;
  const cut = () => {
    for (const socket of sockets) socket.destroy();
  };
  const proxy: SlowProxy = {
    port: (server.address() as AddressInfo).port,
    delayMs: 0,
    targetPort,
    silence() {
      for (const socket of sockets) silenced.add(socket);
    },
    reset() {
      for (const socket of sockets) resets.add(socket);
    },
    cut,
    get isOpen() {
      return isOpen;
    },
    set isOpen(opens) {
      isOpen = opens;
      if (!opens) cut();
    },
    async close() {
      cut();
      server.close();
      await once(server, 'close');
    },
  };
  return proxy;
}
