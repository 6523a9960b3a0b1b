import { afterEach, describe, expect, it } from 'vitest';
import { Inject, Injectable, type LoggerService, Scope, SetMetadata, type Type } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { MemoryBackend } from '../../lib/backends/memory/index.js';
import {
  DistributedLockModule,
  type DistributedLockModuleOptions,
  InjectLeaderElection,
  LeaderElection,
  LeaderOnly,
  type LeaderTerm,
  LockConfigError,
  LockShutdownError,
  LockTimeoutError,
  Locked,
  OnElected,
  OnRevoked,
  currentLock,
  getLeaderElectionToken,
} from '../../lib/index.js';
import { LockTestingModule } from '../../lib/testing/index.js';
import { Gate } from '../support/gate.js';
import { until } from '../support/until.js';

const closing: TestingModule[] = [];
afterEach(async () => {
  for (const app of closing.splice(0)) await app.close();
});

interface Wanted extends Partial<DistributedLockModuleOptions> {
  logged?: string[];
}

async function boot(providers: readonly object[], { logged = [], ...options }: Wanted = {}) {
  const backend = options.backend ?? new MemoryBackend();
  const write = (message: unknown) => void logged.push(String(message));
  const logger: LoggerService = { log: write, warn: write, error: write };
  const app = await Test.createTestingModule({
    imports: [DistributedLockModule.forRoot({ ...options, backend })],
    providers: providers as Type[],
  })
    .setLogger(logger)
    .compile();
  closing.push(app);
  return app.init();
}

const ended = ({ signal }: LeaderTerm) =>
  new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));

@Injectable()
class Boss {
  readonly terms: LeaderTerm[] = [];
  readonly revoked: LeaderTerm[] = [];
  readonly calls: unknown[] = [];

  @OnElected('boss')
  async lead(term: LeaderTerm): Promise<void> {
    this.terms.push(term);
    await ended(term);
  }

  @OnRevoked('boss')
  retire(term: LeaderTerm): void {
    this.revoked.push(term);
  }

  @LeaderOnly('boss')
  async decide(what: string): Promise<string | undefined> {
    this.calls.push([what, currentLock()?.fencingToken]);
    return `decided ${what}`;
  }

  @LeaderOnly('boss', { otherwise: 'throw' })
  async insist(): Promise<string> {
    return 'done';
  }
}

describe('of two replicas', () => {
  it('one leads; the other leads after the first has shut down', async () => {
    const backend = new MemoryBackend();
    const first = await boot([Boss], { backend });
    await until(() => first.get(Boss).terms.length === 1);
    const second = await boot([Boss], { backend });
    const candidate = second.get(LeaderElection).join('boss');
    expect(candidate.isLeader()).toBe(false);
    await first.close();
    const [term] = first.get(Boss).terms;
    expect(term!.signal.reason).toBeInstanceOf(LockShutdownError);
    expect(first.get(Boss).revoked).toEqual([term]);
    await until(() => second.get(Boss).terms.length === 1);
    expect(second.get(Boss).terms[0]!.number > term!.number).toBe(true);
    expect(candidate.isLeader()).toBe(true);
  });

  it('only the leader runs methods for leaders, under the lease of its term', async () => {
    const backend = new MemoryBackend();
    const first = await boot([Boss], { backend });
    await until(() => first.get(Boss).terms.length === 1);
    const second = await boot([Boss], { backend });
    expect(await first.get(Boss).decide('x')).toBe('decided x');
    expect(first.get(Boss).calls).toEqual([['x', first.get(Boss).terms[0]!.number]]);
    expect(await second.get(Boss).decide('x')).toBeUndefined();
    expect(second.get(Boss).calls).toEqual([]);
    expect(await first.get(Boss).insist()).toBe('done');
    await expect(second.get(Boss).insist()).rejects.toThrow(LockTimeoutError);
  });
});

describe('shutdown', () => {
  it('waits for the work of a leader, and for calls of @LeaderOnly methods', async () => {
    const gate = new Gate();
    const order: string[] = [];
    @Injectable()
    class Slow {
      @OnElected('slow')
      async lead({ signal }: LeaderTerm): Promise<void> {
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
        order.push('revoked');
      }

      @LeaderOnly('slow')
      async call(): Promise<void> {
        await gate.passed;
        order.push('called');
      }
    }
    const backend = new MemoryBackend();
    const app = await boot([Slow], { backend });
    await until(() => app.get(LeaderElection).join('slow').isLeader());
    const call = app.get(Slow).call();
    const closed = app.close();
    await until(() => order.length === 1);
    expect(await backend.inspect('lock/leader:slow')).not.toBeNull();
    gate.open();
    await Promise.all([call, closed]);
    expect(order).toEqual(['revoked', 'called']);
    expect(await backend.inspect('lock/leader:slow')).toBeNull();
  });

  it('reports work that does not end, and lets its lease expire', async () => {
    @Injectable()
    class Stubborn {
      @OnElected('stubborn')
      lead(): Promise<void> {
        return new Promise(() => undefined);
      }
    }
    const [backend, logged] = [new MemoryBackend(), [] as string[]];
    const shutdown = { drainMs: 10, abortGraceMs: 10 };
    const app = await boot([Stubborn], { backend, logged, shutdown });
    await until(() => app.get(LeaderElection).join('stubborn').isLeader());
    await app.close();
    expect(logged.join()).toContain('@OnElected on Stubborn.lead did not end');
    expect(await backend.inspect('lock/leader:stubborn')).not.toBeNull();
  });
});

describe('an error of a leader', () => {
  it('is logged, and the process stays leader', async () => {
    @Injectable()
    class Broken {
      @OnElected('broken')
      lead(): void {
        throw new Error('no idea what to do');
      }
    }
    const logged: string[] = [];
    const app = await boot([Broken], { logged });
    await until(() => logged.join().includes('no idea what to do'));
    expect(app.get(LeaderElection).join('broken').isLeader()).toBe(true);
  });
});

describe('decorated methods', () => {
  it('keep name, length and metadata, in either order of decorators', () => {
    class Marked {
      @SetMetadata('above', 1)
      @LeaderOnly('boss')
      @SetMetadata('below', 2)
      async only(_first: string, _second: number): Promise<void> {}

      @SetMetadata('above', 1)
      @OnElected('boss')
      @SetMetadata('below', 2)
      lead(_term: LeaderTerm): void {}
    }
    const { only, lead } = Marked.prototype;
    expect([only.name, only.length, lead.name, lead.length]).toEqual(['only', 2, 'lead', 1]);
    for (const method of [only, lead]) {
      expect(Reflect.getMetadata('above', method)).toBe(1);
      expect(Reflect.getMetadata('below', method)).toBe(2);
    }
  });

  it('work above and below @Locked, and in several elections', async () => {
    @Injectable()
    class Both {
      readonly seen: unknown[] = [];

      @OnElected('above')
      @Locked('key')
      @OnElected('below')
      async lead(): Promise<void> {
        this.seen.push(currentLock()?.key);
      }
    }
    const app = await boot([Both]);
    await until(() => app.get(Both).seen.length === 2);
    expect(app.get(Both).seen).toEqual(['key', 'key']);
  });

  it('are inherited, and run once on an instance that is provided twice', async () => {
    @Injectable()
    class Heir extends Boss {}
    const app = await boot([Heir, { provide: 'alias', useExisting: Heir }]);
    await until(() => app.get(Heir).terms.length > 0);
    expect(app.get(Heir).terms).toHaveLength(1);
  });

  it('work on instances that a factory created', async () => {
    const app = await boot([{ provide: 'made', useFactory: () => new Boss() }]);
    await until(() => app.get<Boss>('made').terms.length === 1);
    expect(await app.get<Boss>('made').decide('x')).toBe('decided x');
  });

  it('with @LeaderOnly may be request-scoped, and join the election', async () => {
    @Injectable({ scope: Scope.REQUEST })
    class PerRequest {
      @LeaderOnly('requests')
      async call(): Promise<string | undefined> {
        return 'called';
      }
    }
    const app = await boot([PerRequest]);
    await until(() => app.get(LeaderElection).join('requests').isLeader());
    expect(await (await app.resolve(PerRequest)).call()).toBe('called');
  });

  it.each([Scope.REQUEST, Scope.TRANSIENT])(
    'that run when elected cannot stand on instances that Nest makes again and again',
    async (scope) => {
      @Injectable({ scope })
      class Scoped {
        @OnElected('scoped')
        lead(): void {}
      }
      await expect(boot([Scoped])).rejects.toThrow(
        /@OnElected on Scoped.lead: expected a provider that Nest/,
      );
    },
  );

  it.each([
    ['@OnElected', () => OnElected('')],
    ['@OnRevoked', () => OnRevoked('boss', { leaseMs: 1 } as never)],
    ['@LeaderOnly', () => LeaderOnly('boss', { otherwise: 'wait' as never })],
  ])('with wrong options are refused when the class is defined: %s', (_, decorator) => {
    const define = () => {
      class Wrong {
        async method(): Promise<void> {}
      }
      const descriptor = Object.getOwnPropertyDescriptor(Wrong.prototype, 'method')!;
      decorator()(Wrong.prototype, 'method', descriptor);
    };
    expect(define).toThrow(LockConfigError);
  });

  it('do not boot without the module, and the message names what to import', async () => {
    const builder = Test.createTestingModule({ providers: [Boss] });
    await expect(builder.compile()).rejects.toThrow(/DistributedLockModule\.forRoot\(\) imported\?/);
  });
});

describe('a named module', () => {
  it('has its own elections', async () => {
    @Injectable()
    class Named {
      readonly terms: LeaderTerm[] = [];
      constructor(@InjectLeaderElection('second') readonly elections: LeaderElection) {}

      @OnElected('boss', { service: 'second' })
      lead(term: LeaderTerm): void {
        this.terms.push(term);
      }

      @LeaderOnly('boss', { service: 'second' })
      async call(): Promise<string | undefined> {
        return 'called';
      }
    }
    const app = await boot([Named], { name: 'second' });
    const named = app.get(Named);
    await until(() => named.terms.length === 1);
    expect(app.get(getLeaderElectionToken('second'))).toBe(named.elections);
    expect(named.elections.join('boss').term()).toBe(named.terms[0]);
    expect(await named.call()).toBe('called');
  });
});

describe('the lease of an election', () => {
  @Injectable()
  class Asking {
    @LeaderOnly('boss')
    async call(): Promise<void> {}
  }
  @Injectable()
  class Short {
    @OnElected('boss', { leaseMs: 4_000 })
    lead(): void {}
  }
  const remainingMs = async (app: TestingModule) => {
    const candidate = app.get(LeaderElection).join('boss');
    await until(() => candidate.isLeader());
    return (await candidate.leader())!.remainingMs;
  };
  const isOf = (leaseMs: number) => [expect.any(Number) as number, true, leaseMs];
  const shown = (leftMs: number, leaseMs: number) => [
    leftMs,
    leftMs > leaseMs / 2 && leftMs <= leaseMs,
    leaseMs,
  ];

  it('is the default of the module', async () => {
    const app = await boot([Asking], { defaults: { leaseMs: 120_000 } });
    expect(shown(await remainingMs(app), 120_000)).toEqual(isOf(120_000));
  });

  it('is 15 s if the module sets none', async () => {
    const app = await boot([Asking], { defaults: { waitMs: 1 } });
    expect(shown(await remainingMs(app), 15_000)).toEqual(isOf(15_000));
  });

  it.each([
    ['first', [Short, Asking]],
    ['last', [Asking, Short]],
  ])('is that of @OnElected, which stands %s', async (_, providers) => {
    const app = await boot(providers, { defaults: { leaseMs: 120_000 } });
    expect(shown(await remainingMs(app), 4_000)).toEqual(isOf(4_000));
  });

  it('is that of @OnElected where a constructor joined without one', async () => {
    @Injectable()
    class Joining {
      constructor(@Inject(LeaderElection) elections: LeaderElection) {
        elections.join('boss');
      }
    }
    const app = await boot([Joining, Short]);
    expect(shown(await remainingMs(app), 4_000)).toEqual(isOf(4_000));
  });

  it('is the same for all methods: two different ones fail the boot, and are named', async () => {
    @Injectable()
    class Long {
      @OnElected('boss', { leaseMs: 60_000 })
      lead(): void {}
    }
    const booting = boot([Asking, Short, Long]);
    await expect(booting).rejects.toThrow(LockConfigError);
    await expect(booting).rejects.toThrow(
      'Expected one leaseMs for the election "boss", got 4000 from @OnElected on Short.lead and 60000 from @OnElected on ' +
        'Long.lead.',
    );
  });

  it.each([
    ['too short a lease', OnElected, { leaseMs: 1 }, /@OnElected on Boss\.lead: .*options\.leaseMs.*got 1/],
    [
      'a lease of @OnRevoked',
      OnRevoked,
      { leaseMs: 4_000 },
      /@OnRevoked on Boss\.lead: .*no option 'leaseMs'/,
    ],
  ])('is refused when the class is defined: %s', (_, decorator, options, message) => {
    const descriptor = Object.getOwnPropertyDescriptor(Boss.prototype, 'lead')!;
    expect(() => decorator('boss', options)(Boss.prototype, 'lead', descriptor)).toThrow(message);
  });
});

describe('an election joined with join()', () => {
  it('before the application has booted sets the lease for decorators too', async () => {
    @Injectable()
    class Quick extends Boss {
      constructor(@Inject(LeaderElection) elections: LeaderElection) {
        super();
        elections.join('boss', { leaseMs: 3_000 });
      }
    }
    const app = await boot([Quick]);
    await until(() => app.get(Quick).terms.length === 1);
    const leader = await app.get(LeaderElection).join('boss').leader();
    expect(leader!.remainingMs).toBeLessThanOrEqual(3_000);
  });

  it('elects at once in LockTestingModule', async () => {
    const app = await Test.createTestingModule({
      imports: [LockTestingModule.forRoot({ instance: 'test' })],
      providers: [Boss],
    }).compile();
    closing.push(app);
    await app.init();
    await until(() => app.get(Boss).terms.length === 1);
    expect(await app.get(LeaderElection).join('boss').leader()).toMatchObject({ instance: 'test' });
    await app.close();
    expect(app.get(Boss).revoked).toEqual(app.get(Boss).terms);
  });
});

it('an election that was left and joined again runs its methods again', async () => {
  const app = await boot([Boss]);
  const elections = app.get(LeaderElection);
  await until(() => app.get(Boss).terms.length === 1);
  await elections.join('boss').leave();
  elections.join('boss');
  await until(() => app.get(Boss).terms.length === 2);
});
