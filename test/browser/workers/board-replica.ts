import {
  type CanActivate,
  type ExecutionContext,
  ForbiddenException,
  UnauthorizedException,
} from '@nestjs/common';
import { ScheduleModule } from '@nestjs/schedule';
import { Test } from '@nestjs/testing';
// The built package: what runs the TypeScript here cannot load page-folder.cts.
import { DistributedLockModule } from 'nestjs-distributed-lock';
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
}

const { redis, namespace, instance } = JSON.parse(process.argv[2] ?? '{}') as Task;
const module = await Test.createTestingModule({
  imports: [
    ScheduleModule.forRoot(),
    DistributedLockModule.forRoot({ backend: redisBackend({ url: redis }), namespace, instance }),
    LockBoardModule.forRoot({ path: 'admin/locks', guards: [adminGuard], actions: 'all' }),
  ],
}).compile();
const app = module.createNestApplication({ logger: false });
await app.listen(0, '127.0.0.1');
process.send?.({ port: Number(new URL(await app.getUrl()).port) });
