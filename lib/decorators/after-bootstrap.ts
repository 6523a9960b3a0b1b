import type { ModulesContainer } from '@nestjs/core';

interface Bootstrapped {
  onApplicationBootstrap?(): unknown;
}

/**
 * Calls back once every `onApplicationBootstrap` of the application has ended. The last one is that of the class of the root
 * module; Nest has no hook behind it.
 */
export function afterBootstrap(modules: ModulesContainer, callback: () => void): void {
  const [root] = [...modules.values()].sort((one, other) => other.distance - one.distance).slice(-1);
  const host = root?.getNonAliasProviders()[0]?.[1];
  const instance = host?.instance as Bootstrapped | undefined;
  // Nest does not call one that depends on a request, and a frozen one takes no new property.
  if (!instance || !host?.isDependencyTreeStatic() || !Object.isExtensible(instance)) {
    callback();
    return;
  }
  const name = 'onApplicationBootstrap';
  const before = Object.getOwnPropertyDescriptor(instance, name);
  const original = instance.onApplicationBootstrap;
  const last = async (): Promise<void> => {
    if (before) Object.defineProperty(instance, name, before);
    else delete instance.onApplicationBootstrap;
    await original?.call(instance);
    callback();
  };
  Object.defineProperty(instance, name, { value: last, configurable: true, writable: true });
}
