import type { LazyModuleLoader, ModulesContainer } from '@nestjs/core';

interface BootstrapHook {
  onApplicationBootstrap?(): unknown;
}

/**
 * Calls back after every `onApplicationBootstrap` of the application has ended. Nest has no such hook. The root module's own
 * `onApplicationBootstrap` is the last one, so this replaces it for one call.
 */
export function runAfterBootstrap(modules: ModulesContainer, callback: () => void): void {
  // Nest calls no hooks of a module that is loaded lazily during the boot. Such a module has distance 0.
  const [root] = [...modules.values()]
    .filter(({ distance }) => distance > 0)
    .sort((one, other) => other.distance - one.distance)
    .slice(-1);
  const host = root?.getNonAliasProviders()[0]?.[1];
  const instance = host?.instance as BootstrapHook | undefined;
  // Nest does not call the hook of an instance that depends on a request, and a frozen instance accepts no new property.
  if (!instance || !host?.isDependencyTreeStatic() || !Object.isExtensible(instance)) {
    callback();
    return;
  }
  const name = 'onApplicationBootstrap';
  const originalDescriptor = Object.getOwnPropertyDescriptor(instance, name);
  const original = instance.onApplicationBootstrap;
  const replacement = async (): Promise<void> => {
    if (originalDescriptor) Object.defineProperty(instance, name, originalDescriptor);
    else delete instance.onApplicationBootstrap;
    await original?.call(instance);
    callback();
  };
  Object.defineProperty(instance, name, { value: replacement, configurable: true, writable: true });
}

/** Calls back after each module that was loaded lazily. Nest calls no hooks of such a module, so this wraps the loader. */
export function runAfterLazyLoad(lazyModules: LazyModuleLoader, callback: () => void): void {
  const load = lazyModules.load.bind(lazyModules);
  lazyModules.load = async (...given) => {
    const loaded = await load(...given);
    callback();
    return loaded;
  };
}
