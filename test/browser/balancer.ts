import { once } from 'node:events';
import { type AddressInfo, type Socket, connect, createServer } from 'node:net';

/** One address for several replicas, as a load balancer has: connections go to the first one that accepts them. */
export async function startBalancer(
  ports: readonly number[],
): Promise<{ url: string; close: () => Promise<void> }> {
  const sockets = new Set<Socket>();
  const server = createServer((incoming) => {
    track(incoming);
    forward(incoming, [...ports]);
  });
  const track = (socket: Socket) => {
    sockets.add(socket);
    // A replica that was killed resets its connections. 'close' follows.
    socket.on('error', () => undefined);
    socket.on('close', () => sockets.delete(socket));
  };
  const forward = (incoming: Socket, [port, ...others]: number[]): void => {
    if (port === undefined) {
      incoming.destroy();
      return;
    }
    const outgoing = connect(port, '127.0.0.1');
    track(outgoing);
    const tryNext = () => forward(incoming, others);
    outgoing.once('error', tryNext);
    outgoing.once('connect', () => {
      outgoing.off('error', tryNext);
      incoming.pipe(outgoing).pipe(incoming);
      outgoing.on('close', () => incoming.destroy());
      incoming.on('close', () => outgoing.destroy());
    });
  };
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const close = async () => {
    server.close();
    for (const socket of sockets) socket.destroy();
    await once(server, 'close');
  };
  return { url: `http://127.0.0.1:${port}`, close };
}
