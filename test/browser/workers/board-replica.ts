import {
  type CanActivate,
  type ExecutionContext,
  ForbiddenException,
  UnauthorizedException,
} from '@nestjs/common';
import { ScheduleModule } from '@nestjs/schedule';
import { Test } from '@nestjs/testing';
// The built package: what runs the TypeScript here cannot load page-folder.cts.
import { CronRuns, DistributedLockModule } from 'nestjs-distributed-lock';
import { LockBoardModule } from 'nestjs-distributed-lock/board';
import { redisBackend } from 'nestjs-distributed-lock/redis';

/** 401 without the cookie of a user, 403 with that of a user who is no admin. */
const adminGuard: CanActivate = {
  canActivate(context: ExecutionContext): boolean {
    const { headers } = context.switchToHttp().getRequest<{ headers: { cookie?: string } }>();
    if (headers.cookie === undefined) throw new UnauthorizedException();
    if (!headers.cookie.includes('user=admin')) throw new ForbiddenException();
    return true;
  },
};

interface Task {
  readonly redis: string;
  readonly namespace: string;
  readonly instance: string;
  readonly adapter: 'Express' | 'Fastify';
}

const { redis, namespace, instance, adapter } = JSON.parse(process.argv[2] ?? '{}') as Task;
const module = await Test.createTestingModule({
  imports: [
    ScheduleModule.forRoot(),
    DistributedLockModule.forRoot({ backend: redisBackend({ url: redis }), namespace, instance }),
    LockBoardModule.forRoot({ path: 'admin/locks', guards: [adminGuard], actions: 'all' }),
  ],
}).compile();
// Only the one that is used: beside Nest 11 there is no Fastify adapter.
const server =
  adapter === 'Fastify'
    ? new (await import('@nestjs/platform-fastify')).FastifyAdapter()
    : new (await import('@nestjs/platform-express')).ExpressAdapter();
const app = module.createNestApplication(server, { logger: false });
await app.listen(0, '127.0.0.1');
const cronRuns = app.get(CronRuns);
const longWork = () => new Promise<void>((resolve) => setTimeout(resolve, 60_000).unref());
const guard = (key: string, cronTime: string, work: () => Promise<void> | void) =>
  cronRuns.guard(key, { cronTime, timeZone: 'Europe/Berlin' }, work);
const jobs = [
  guard('nightly', '0 3 * * *', () => undefined),
  guard('send-reports', '*/5 * * * *', longWork),
  guard('cleanup', '30 4 * * 0', () => undefined),
];
process.send?.({ port: Number(new URL(await app.getUrl()).port) });
// Without a reference, they would be garbage-collected.
process.on('exit', () => jobs.forEach((job) => job[Symbol.dispose]()));
