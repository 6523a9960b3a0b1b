import { afterEach, describe, expect, it } from 'vitest';
import { Controller, Get, Injectable, Module, type ModuleMetadata, Scope } from '@nestjs/common';
import { ContextIdFactory, REQUEST } from '@nestjs/core';
import { Test, type TestingModule } from '@nestjs/testing';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import {
  DistributedLockModule,
  type DistributedLockModuleAsyncOptions,
  type DistributedLockOptionsFactory,
  LockConfigError,
  LockService,
  Locked,
} from '../../lib/index.js';

@Injectable({ scope: Scope.REQUEST })
class TenantSettings {
  readonly namespace = 'shop';
}

@Injectable({ scope: Scope.REQUEST, durable: true })
class DurableSettings extends TenantSettings {}

@Injectable()
class Settings implements DistributedLockOptionsFactory {
  constructor(readonly tenant: TenantSettings) {}

  createDistributedLockOptions() {
    return { namespace: this.tenant.namespace, backend: memoryBackend() };
  }
}

@Injectable({ scope: Scope.TRANSIENT })
class TransientSettings {
  readonly namespace = 'shop';
}

const providers = [TenantSettings, DurableSettings, Settings, TransientSettings];

@Module({ providers, exports: providers })
class SettingsModule {}

const fromSettings = {
  imports: [SettingsModule],
  useFactory: ({ namespace }: { namespace: string }) => ({ namespace, backend: memoryBackend() }),
};

const closing: TestingModule[] = [];
afterEach(async () => {
  for (const app of closing.splice(0)) await app.close();
});

async function compiled(options: DistributedLockModuleAsyncOptions, more: ModuleMetadata = {}) {
  const imports = [DistributedLockModule.forRootAsync(options)];
  const app = await Test.createTestingModule({ ...more, imports }).compile();
  closing.push(app);
  return app;
}

const bootError = async (options: DistributedLockModuleAsyncOptions) => {
  const app = await compiled(options);
  return app.init().then(
    () => undefined,
    (error: unknown) => error,
  );
};

describe('forRootAsync with options that depend on a request', () => {
  const cases: Record<string, DistributedLockModuleAsyncOptions> = {
    'a request-scoped provider': { ...fromSettings, inject: [TenantSettings] },
    'a durable provider': { ...fromSettings, inject: [DurableSettings] },
    'an optional one': { ...fromSettings, inject: [{ token: TenantSettings, optional: true }] },
    'the request': { useFactory: () => ({ backend: memoryBackend() }), inject: [REQUEST] },
    'a class that needs one': { imports: [SettingsModule], useExisting: Settings },
    'a class of its own that needs one': { imports: [SettingsModule], useClass: Settings },
    'one, in a module with a name': { ...fromSettings, inject: [TenantSettings], name: 'reports' },
    'one, in a module that is not global': { ...fromSettings, inject: [TenantSettings], isGlobal: false },
  };

  it.each(Object.entries(cases))('fails the boot: %s', async (_, options) => {
    const error = await bootError(options);
    expect(error).toBeInstanceOf(LockConfigError);
    expect((error as Error).message).toMatch(/made once.*request.*key/s);
  });

  it('names the request-scoped provider and the path to it', async () => {
    const error = await bootError({ imports: [SettingsModule], useExisting: Settings });
    expect((error as Error).message).toContain('Settings, TenantSettings');
  });

  it('fails the first call where the application does not boot', async () => {
    @Controller()
    class Shop {
      @Get()
      @Locked('product')
      async buy(): Promise<string> {
        return 'bought';
      }
    }
    const options = { ...fromSettings, inject: [TenantSettings] };
    const app = await compiled(options, { controllers: [Shop] });
    const request = ContextIdFactory.create();
    await expect(app.resolve(Shop, request)).rejects.toThrow(LockConfigError);
    await expect(app.resolve(LockService, request)).rejects.toThrow(LockConfigError);
  });

  it('boots with options from a transient provider, which Nest creates once for them', async () => {
    const app = await compiled({ ...fromSettings, inject: [TransientSettings] });
    await app.init();
    await using lock = await app.get(LockService).acquire('key');
    expect(lock.isValid()).toBe(true);
  });
});
