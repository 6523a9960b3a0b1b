import { Inject } from '@nestjs/common';
import { otherVersions } from '../core/copies.js';
import { LockConfigError } from '../core/errors.js';

/** What Nest knows something by that decorated classes ask for. Its text is what Nest prints when it is missing. */
export type SeatToken = symbol;

const moduleCall = (name?: string) =>
  name === undefined
    ? 'DistributedLockModule.forRoot()'
    : `DistributedLockModule.forRoot({ name: '${name}' })`;

/** The token of one kind of service; registered by its text, so that no state is kept here. */
export const seatToken = (service: string, name?: string): SeatToken =>
  Symbol.for(`${service} - is ${moduleCall(name)} imported?`);

/**
 * Gives a class a seat for what its decorated methods need: a property under a symbol, filled by Nest with its own
 * property injection. So it works in every scope, in subclasses, and with several applications in one process.
 */
export function takeSeat(prototype: object, token: SeatToken, place: string): symbol {
  const reason = otherVersions();
  if (reason !== undefined) throw new LockConfigError(`${place}: ${reason}`);
  if (token in prototype) return token;
  Inject(token)(prototype, token);
  Object.defineProperty(prototype, token, {
    configurable: true,
    get(this: object) {
      const text = Symbol.keyFor(token);
      throw new LockConfigError(
        `${place}: this ${this.constructor.name} was not made by Nest, so nobody gave it locks (${text}). Let Nest make it, or in a ` +
          `unit test use Test.createTestingModule({ imports: [LockTestingModule.forRoot()], providers: [${this.constructor.name}] }).`,
      );
    },
    set: sit,
  });
  return token;

  function sit(this: object, service: unknown): void {
    Object.defineProperty(this, token, { value: service, configurable: true, writable: true });
  }
}

/**
 * What sits there.
 *
 * @throws LockConfigError if Nest has not filled the seat
 */
export const inSeat = (instance: object, token: SeatToken): unknown =>
  (instance as Record<SeatToken, unknown>)[token];

/** Whether the instance has this seat, and nobody sits there. */
export const isEmptySeat = (instance: object, token: SeatToken) =>
  token in instance && !Object.hasOwn(instance, token);
