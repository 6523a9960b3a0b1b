import { afterEach, expect, it } from 'vitest';
import {
  type ArgumentsHost,
  Controller,
  Get,
  type INestApplication,
  Param,
  UseFilters,
} from '@nestjs/common';
import { APP_FILTER, ExternalContextCreator } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { Test } from '@nestjs/testing';
import {
  LockConfigError,
  LockExceptionFilter,
  LockLostError,
  LockReentryError,
  LockShutdownError,
  LockTimeoutError,
  LockUnavailableError,
} from '../../lib/index.js';

const SECRET = 'order:42 at redis.internal:6379: WRONGPASS';
const ERRORS = {
  LockTimeoutError,
  LockLostError,
  LockUnavailableError,
  LockShutdownError,
  LockReentryError,
  LockConfigError,
};

@Controller()
class Failing {
  @Get(':name')
  fail(@Param('name') name: keyof typeof ERRORS): never {
    throw new ERRORS[name](SECRET, { key: SECRET, cause: new Error(SECRET) });
  }
}

let app: INestApplication | undefined;
afterEach(() => app?.close());

const RESPONSES: readonly (readonly [
  name: keyof typeof ERRORS,
  status: number,
  retryAfter: string | null,
])[] = [
  ['LockTimeoutError', 409, '1'],
  ['LockLostError', 409, null],
  ['LockUnavailableError', 503, '1'],
  ['LockShutdownError', 503, '1'],
  ['LockReentryError', 500, null],
  ['LockConfigError', 500, null],
];

const adapters = { Express: () => new ExpressAdapter(), Fastify: () => new FastifyAdapter() };

it.each(
  (['Express', 'Fastify'] as const).flatMap((adapter) =>
    RESPONSES.map(([name, status, retryAfter]) => ({ adapter, name, status, retryAfter })),
  ),
)('on $adapter, $name is a response with the status $status and a fixed text', async (expected) => {
  const { adapter, name, status, retryAfter } = expected;
  const module = await Test.createTestingModule({
    controllers: [Failing],
    providers: [{ provide: APP_FILTER, useClass: LockExceptionFilter }],
  }).compile();
  app = module.createNestApplication(adapters[adapter](), { logger: false });
  await app.listen(0, '127.0.0.1');
  const response = await fetch(`${await app.getUrl()}/${name}`);
  expect(response.status).toBe(status);
  expect(response.headers.get('retry-after')).toBe(retryAfter);
  const body = await response.text();
  expect(body).not.toMatch(/order|redis|WRONGPASS/);
  expect(JSON.parse(body)).toMatchObject({ statusCode: status });
});

const fail = (message: string): never => {
  throw new Error(message);
};

const hostOf = (type: string, response: object) =>
  ({
    getType: () => type,
    switchToHttp: () => ({ getResponse: () => response }),
  }) as unknown as ArgumentsHost;

it('a context other than HTTP is left alone', () => {
  const host = { ...hostOf('rpc', {}), switchToHttp: () => fail('taken for HTTP') };
  new LockExceptionFilter().catch(new LockTimeoutError(SECRET), host);
});

class Resolver {
  resolve(): never {
    throw new ERRORS.LockTimeoutError(SECRET);
  }
}
UseFilters(LockExceptionFilter)(Resolver);

it.each(['graphql', 'rpc'])('in the context %s, Nest handles the error as it is', async (type) => {
  const module = await Test.createTestingModule({ providers: [Resolver, LockExceptionFilter] }).compile();
  app = module.createNestApplication({ logger: false });
  await app.init();
  const resolver = app.get(Resolver);
  const call = app
    .get(ExternalContextCreator)
    .create(
      ...([
        resolver,
        () => resolver.resolve(),
        'resolve',
        undefined,
        undefined,
        undefined,
        undefined,
        undefined,
        type,
      ] as const),
    );
  await expect(call()).rejects.toBeInstanceOf(LockTimeoutError);
});

it('a gateway emits the exception with a fixed text, because Nest sends nothing after a filter', () => {
  const emitted: unknown[] = [];
  const client = { emit: (...event: unknown[]) => void emitted.push(event) };
  const host = { ...hostOf('ws', {}), switchToWs: () => ({ getClient: () => client }) };
  new LockExceptionFilter().catch(new LockTimeoutError(SECRET), host as unknown as ArgumentsHost);
  const message = 'Another request is working on this. Try again later.';
  expect(emitted).toEqual([['exception', { status: 'error', message }]]);
});

it('a response whose headers were sent is ended', () => {
  const ended: string[] = [];
  const reply = { raw: { headersSent: true, end: () => void ended.push('fastify') } };
  const response = { headersSent: true, end: () => void ended.push('express') };
  const filter = new LockExceptionFilter();
  filter.catch(new LockTimeoutError(SECRET), hostOf('http', reply));
  filter.catch(new LockTimeoutError(SECRET), hostOf('http', response));
  expect(ended).toEqual(['fastify', 'express']);
});
