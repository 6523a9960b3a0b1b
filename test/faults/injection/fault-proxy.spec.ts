import { once } from 'node:events';
import { type AddressInfo, type Server, type Socket, connect, createServer } from 'node:net';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { until } from '../../support/until.js';
import { FaultProxy } from './fault-proxy.js';

let server: Server;
let proxy: FaultProxy;
let arrived: string[];
let served: Socket[];
let clients: Socket[];

beforeEach(async () => {
  [arrived, served, clients] = [[], [], []];
  server = createServer((socket) => {
    served.push(socket);
    socket.on('error', () => undefined);
    socket.on('data', (bytes) => {
      arrived.push(String(bytes));
      socket.write(`re:${String(bytes)}`);
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  proxy = await FaultProxy.to((server.address() as AddressInfo).port);
});
afterEach(async () => {
  for (const socket of [...clients, ...served]) socket.destroy();
  await proxy.close();
  server.close();
});

interface Client {
  readonly socket: Socket;
  readonly heard: string[];
  error?: string | undefined;
}

async function client(): Promise<Client> {
  const socket = connect(proxy.port, '127.0.0.1');
  clients.push(socket);
  const one: Client = { socket, heard: [] };
  socket.on('data', (bytes) => one.heard.push(String(bytes)));
  socket.on('error', (error: NodeJS.ErrnoException) => (one.error = error.code));
  await once(socket, 'connect');
  return one;
}

/** A client that has been answered once. */
async function answered(): Promise<Client> {
  const one = await client();
  one.socket.write('hello');
  await until(() => one.heard.length === 1);
  return one;
}

it('passes what is said, in both directions, and the end', async () => {
  const one = await answered();
  expect([arrived, one.heard]).toEqual([['hello'], ['re:hello']]);
  one.socket.end();
  await until(() => one.socket.closed && served[0]!.closed);
});

it('holds requests until it is healed', async () => {
  const one = await answered();
  proxy.setConditions({ up: 'hold' });
  one.socket.write('held');
  const other = await client();
  other.socket.write('held too');
  proxy.setConditions({ up: 'hold', down: 'hold' });
  expect(arrived).toEqual(['hello']);
  proxy.heal();
  await until(() => one.heard.length === 2 && other.heard.length === 1);
});

it('holds replies until it is healed', async () => {
  const one = await answered();
  proxy.setConditions({ down: 'hold' });
  one.socket.write('landed');
  await until(() => arrived.length === 2);
  expect(one.heard).toHaveLength(1);
  proxy.heal();
  await until(() => one.heard.length === 2);
});

it('drops requests, and resets the connection when it is healed', async () => {
  const one = await answered();
  proxy.setConditions({ up: 'drop' });
  one.socket.write('gone');
  await until(() => proxy.hasGaps);
  proxy.heal();
  await until(() => one.socket.closed);
  expect([one.error, arrived]).toEqual(['ECONNRESET', ['hello']]);
});

it('cuts the connection when the server has answered', async () => {
  const one = await answered();
  proxy.setConditions({ cuts: 'reply' });
  one.socket.write('landed');
  await until(() => one.socket.closed);
  expect([arrived, one.heard]).toEqual([['hello', 'landed'], ['re:hello']]);
});

it('cuts the connection in the middle of a request', async () => {
  const one = await answered();
  proxy.setConditions({ cuts: 'request' });
  one.socket.write('12345678');
  await until(() => one.socket.closed && served[0]!.closed);
  expect(one.heard).toEqual(['re:hello']);
  expect(['1234', undefined]).toContain(arrived[1]);
});

it('leaves the client alone with half a connection, which ends when it is healed', async () => {
  const one = await answered();
  proxy.setConditions({ up: 'drop', down: 'drop' });
  proxy.halfOpen();
  await until(() => served[0]!.closed);
  one.socket.write('into the void');
  expect(one.socket.closed).toBe(false);
  proxy.heal();
  await until(() => one.socket.closed);
});

it('resets those who are connected, and those who come', async () => {
  const one = await answered();
  proxy.setConditions({ refuses: true });
  proxy.resetAll();
  await until(() => one.socket.closed);
  const other = connect(proxy.port, '127.0.0.1').on('error', () => undefined);
  clients.push(other);
  await until(() => other.closed);
  expect(served).toHaveLength(1);
});

it('delays, and keeps the order', async () => {
  const one = await answered();
  let delayMs = 40;
  proxy.setConditions({ delayMs: () => (delayMs -= 10) });
  one.socket.write('first');
  await until(() => delayMs < 40);
  one.socket.write('second');
  await until(() => arrived.join('').endsWith('second'));
  expect(arrived.join('')).toBe('hellofirstsecond');
});
