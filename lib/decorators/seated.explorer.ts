import { type DiscoveryService, MetadataScanner } from '@nestjs/core';
import type { Method } from './replace-method.js';
import type { SeatToken } from './seat.js';

export interface Seated {
  /** Or the prototype of instances that Nest makes again and again. */
  readonly instance: Record<string, Method>;
  /** Whether Nest makes it once. */
  readonly isStatic: boolean;
  /** Inherited ones too. */
  readonly methods: readonly (readonly [name: string, method: Method])[];
}

/**
 * The instances of the application that have this seat, as at least one of their methods is decorated. One that is provided
 * under several tokens comes several times.
 */
export function* findSeated(discovery: DiscoveryService, seat: SeatToken): Generator<Seated> {
  const scanner = new MetadataScanner();
  for (const wrapper of [...discovery.getProviders(), ...discovery.getControllers()]) {
    const isStatic = wrapper.isDependencyTreeStatic() && !wrapper.isTransient;
    const instance = (isStatic ? wrapper.instance : wrapper.metatype?.prototype) as Seated['instance'] | null;
    if (typeof instance !== 'object' || instance === null || !(seat in instance)) continue;
    const prototype = isStatic ? (Object.getPrototypeOf(instance) as object) : instance;
    const methods = scanner.getAllMethodNames(prototype).flatMap((name) => {
      const method = instance[name];
      return method ? [[name, method] as const] : [];
    });
    yield { instance, isStatic, methods };
  }
}
