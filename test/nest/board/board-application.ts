import { request } from 'node:http';
import {
  type CanActivate,
  type ExecutionContext,
  ForbiddenException,
  type INestApplication,
  Injectable,
  Module,
  UnauthorizedException,
} from '@nestjs/common';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { Test } from '@nestjs/testing';
import { memoryBackend } from '../../../lib/backends/memory/index.js';
import { LockBoardModule, type LockBoardModuleOptions } from '../../../lib/board/index.js';
import { DistributedLockModule, type LockBackend } from '../../../lib/index.js';
import { until } from '../../support/until.js';

export const ADAPTERS = { Express: () => new ExpressAdapter(), Fastify: () => new FastifyAdapter() };
export type AdapterName = keyof typeof ADAPTERS;

@Injectable()
export class Passwords {
  isRight(password: unknown): boolean {
    return password === 'right';
  }
}

@Module({ providers: [Passwords], exports: [Passwords] })
export class PasswordModule {}

/** 401 without a password, 403 with a wrong one. */
@Injectable()
export class PasswordGuard implements CanActivate {
  constructor(readonly passwords: Passwords) {}

  canActivate(context: ExecutionContext): boolean {
    const { headers } = context.switchToHttp().getRequest<{ headers: Record<string, unknown> }>();
    if (headers['password'] === undefined) throw new UnauthorizedException();
    if (!this.passwords.isRight(headers['password'])) throw new ForbiddenException();
    return true;
  }
}

export async function bootBoard(
  adapter: AdapterName,
  options: Partial<LockBoardModuleOptions> & { backend?: LockBackend } = {},
  configure: (app: INestApplication) => void = () => undefined,
): Promise<{ app: INestApplication; url: string }> {
  const { backend = memoryBackend(), ...board } = options;
  const module = await Test.createTestingModule({
    imports: [
      DistributedLockModule.forRoot({
        backend,
        namespace: 'shop',
        shutdown: { drainMs: 0, abortGraceMs: 0 },
      }),
      LockBoardModule.forRoot({ guards: 'none', ...board }),
    ],
  }).compile();
  const app = module.createNestApplication(ADAPTERS[adapter](), { logger: false });
  configure(app);
  await app.listen(0, '127.0.0.1');
  return { app, url: await app.getUrl() };
}

interface Release {
  readonly key: string;
  readonly fencingToken: string;
  readonly permit?: number;
}

type ActionHeaders = Readonly<Record<string, string | null>>;

/** Sends a release as the page does, except for these headers. `null` omits one. */
export const postRelease = (
  url: string,
  body: Release | string,
  headers: ActionHeaders = {},
): Promise<number> => postAction(url, 'release', body, headers);

export async function postAction(
  url: string,
  action: 'release' | 'run' | 'pause' | 'resume',
  body: object | string,
  headers: ActionHeaders = {},
): Promise<number> {
  const own = { 'content-type': 'application/json', 'sec-fetch-site': 'same-origin' };
  const sent = Object.entries<string | null>({ ...own, ...headers }).flatMap(([name, value]) =>
    value === null ? [] : [[name, value]],
  );
  return await new Promise((resolve, reject) => {
    // fetch() of Node.js sets Sec-Fetch-* itself.
    const outgoing = request(`${url}/locks/${action}`, {
      method: 'POST',
      headers: Object.fromEntries(sent) as Record<string, string>,
    });
    outgoing.on('response', (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    outgoing.on('error', reject);
    outgoing.end(typeof body === 'string' ? body : JSON.stringify(body));
  });
}

type Received = Readonly<Record<string, unknown>>;

/** An open stream of the board, and the last state of each of its topics. */
export class OpenStream {
  readonly latest = new Map<string, Received>();
  readonly #abort = new AbortController();
  readonly #counts = new Map<string, number>();
  hasEnded = false;

  static async open(url: string, query = '', headers: Record<string, string> = {}): Promise<OpenStream> {
    const stream = new OpenStream();
    const response = await fetch(`${url}/locks/stream${query}`, { signal: stream.#abort.signal, headers });
    if (!response.ok) throw new Error(`The server answers ${response.status}.`);
    void stream.#read(response.body!);
    return stream;
  }

  /** How many states of this topic have arrived. */
  count(topic: string): number {
    return this.#counts.get(topic) ?? 0;
  }

  get keys(): readonly string[] {
    const { locks = [] } = (this.latest.get('locks') ?? {}) as { locks?: { key: string }[] };
    return locks.map(({ key }) => key);
  }

  /** Waits for a state of this topic that is as expected. */
  async next(topic: string, isExpected: (data: Received) => boolean = () => true): Promise<Received> {
    await until(() => {
      const data = this.latest.get(topic);
      return data !== undefined && isExpected(data);
    });
    return this.latest.get(topic)!;
  }

  close(): void {
    this.#abort.abort();
  }

  async #read(body: ReadableStream<Uint8Array>): Promise<void> {
    let text = '';
    try {
      for await (const chunk of body.pipeThrough(new TextDecoderStream())) {
        const blocks = (text + chunk).split('\n\n');
        text = blocks.pop() ?? '';
        for (const block of blocks) this.#receive(block);
      }
    } catch {
      // close() was called, or the server has gone.
    }
    this.hasEnded = true;
  }

  #receive(block: string): void {
    const [, topic, json] = /^event: ([^\n]*)\ndata: ([^\n]*)$/.exec(block) ?? [];
    if (topic === undefined || json === undefined) throw new Error(`Expected an event, got ${block}`);
    this.latest.set(topic, JSON.parse(json) as Received);
    this.#counts.set(topic, this.count(topic) + 1);
  }
}
