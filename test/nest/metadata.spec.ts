import { afterEach, describe, expect, it } from 'vitest';
import {
  type CanActivate,
  Controller,
  Get,
  type INestApplication,
  Injectable,
  Param,
  SetMetadata,
  UseGuards,
} from '@nestjs/common';
import { Cron } from '@nestjs/schedule';
import { Test } from '@nestjs/testing';
import { Locked, SingletonCron, currentLock } from '../../lib/index.js';
import { LockTestingModule } from '../../lib/testing/index.js';

@Injectable()
class ClosedOnSunday implements CanActivate {
  canActivate(): boolean {
    return false;
  }
}

@Controller()
class ShopController {
  @Locked('above:{0}')
  @Get('above/:id')
  async above(@Param('id') id: string): Promise<string> {
    return `${id} under ${currentLock()!.key}`;
  }

  @Get('below/:id')
  @Locked('below:{0}')
  async below(@Param('id') id: string): Promise<string> {
    return `${id} under ${currentLock()!.key}`;
  }

  @Locked('guarded')
  @UseGuards(ClosedOnSunday)
  @Get('guarded')
  async guarded(): Promise<string> {
    return 'open';
  }
}

class Marked {
  @SetMetadata('above', 1)
  @Locked('key')
  @SetMetadata('below', 2)
  async method(_first: string, _second = 2): Promise<void> {}

  @SingletonCron()
  @Cron('0 0 1 1 *', { name: 'yearly' })
  async job(): Promise<void> {}
}

describe('a decorated method', () => {
  let app: INestApplication | undefined;
  afterEach(async () => {
    await app?.close();
    app = undefined;
  });

  const listen = async () => {
    const module = await Test.createTestingModule({
      imports: [LockTestingModule.forRoot()],
      controllers: [ShopController],
      providers: [ClosedOnSunday],
    }).compile();
    app = module.createNestApplication({ logger: false });
    await app.listen(0, '127.0.0.1');
    return app.getUrl();
  };

  it.each(['above', 'below'])('stays a route with the decorator %s that of the route', async (order) => {
    const url = await listen();
    const response = await fetch(`${url}/${order}/42`);
    expect(await response.text()).toBe(`42 under ${order}:42`);
  });

  it('keeps its guards', async () => {
    const url = await listen();
    expect((await fetch(`${url}/guarded`)).status).toBe(403);
  });

  it('keeps its name and length', () => {
    expect(Marked.prototype.method.name).toBe('method');
    expect(Marked.prototype.method.length).toBe(1);
    expect(Marked.prototype.job.name).toBe('job');
  });

  it('keeps metadata from decorators above and below', () => {
    expect(Reflect.getMetadata('above', Marked.prototype.method)).toBe(1);
    expect(Reflect.getMetadata('below', Marked.prototype.method)).toBe(2);
    expect(Reflect.getMetadata('SCHEDULE_CRON_OPTIONS', Marked.prototype.job)).toMatchObject({
      name: 'yearly',
    });
  });

  it('shows metadata that is added to the original later', () => {
    class Late {
      async method(): Promise<void> {}
    }
    const original = Late.prototype.method;
    const descriptor = Object.getOwnPropertyDescriptor(Late.prototype, 'method')!;
    (Locked('key') as MethodDecorator)(Late.prototype, 'method', descriptor);
    Reflect.defineMetadata('late', true, original);
    expect(Reflect.getMetadata('late', descriptor.value as object)).toBe(true);
  });
});
