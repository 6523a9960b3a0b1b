import { expect, it } from 'vitest';
import { Injectable, SetMetadata, applyDecorators } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { LeaderOnly, Locked, SingletonCron, currentLock } from '../../lib/index.js';
import { LockTestingModule } from '../../lib/testing/index.js';

// The test is tsc: this file must compile, and each @ts-expect-error must be an error.

const Exclusive = (key: string) => applyDecorators(Locked(key), SetMetadata('exclusive', true));
const ExclusiveById = () => applyDecorators(Locked((id: number) => `id:${id}`, { onContention: 'skip' }));
const ByLeader = () => applyDecorators(LeaderOnly('boss'));
const Nightly = () => applyDecorators(SingletonCron('0 3 * * *'));

@Injectable()
class Composed {
  @Exclusive('composed')
  async run(): Promise<unknown> {
    return currentLock()?.key;
  }

  @ExclusiveById()
  async runById(_id: number): Promise<unknown> {
    return currentLock()?.key;
  }

  @ByLeader()
  async lead(): Promise<void> {}
}

export class Compiled {
  @Nightly()
  async nightly(): Promise<void> {}

  @Locked('key')
  async fine(): Promise<number> {
    return 1;
  }

  @Locked((id: number) => `id:${id}`)
  async fitting(_id: number, _more: string): Promise<void> {}

  @Locked('key', { onContention: 'skip' })
  async skippable(): Promise<number | undefined> {
    return 1;
  }

  @Locked('key', { onContention: 'skip' })
  async nothing(): Promise<void> {}

  // @ts-expect-error the key function takes a number, the method has a text
  @Locked((id: number) => `id:${id}`)
  async unfitting(_id: string): Promise<void> {}

  // @ts-expect-error callers may get undefined, which the type does not include
  @Locked('key', { onContention: 'skip' })
  async unskippable(): Promise<number> {
    return 1;
  }

  // @ts-expect-error not asynchronous
  @Locked('key')
  immediate(): number {
    return 1;
  }

  @LeaderOnly('boss')
  async byLeader(): Promise<number | undefined> {
    return 1;
  }

  @LeaderOnly('boss', { otherwise: 'throw' })
  async insisting(): Promise<number> {
    return 1;
  }

  // @ts-expect-error callers in other processes get undefined, which the type does not include
  @LeaderOnly('boss')
  async unskippableByLeader(): Promise<number> {
    return 1;
  }

  // @ts-expect-error the same with an explicit option
  @LeaderOnly('boss', { otherwise: 'skip' })
  async alsoUnskippableByLeader(): Promise<number> {
    return 1;
  }

  // @ts-expect-error not asynchronous
  @LeaderOnly('boss')
  immediateLeader(): number {
    return 1;
  }
}

it('decorators of the package work inside applyDecorators', async () => {
  const app = await Test.createTestingModule({
    imports: [LockTestingModule.forRoot()],
    providers: [Composed],
  }).compile();
  await app.init();
  expect(await app.get(Composed).run()).toBe('composed');
  expect(await app.get(Composed).runById(7)).toBe('id:7');
  expect(Reflect.getMetadata('exclusive', app.get(Composed).run)).toBe(true);
  await app.close();
});
