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
        `${place}: this ${this.constructor.name} was not made by Nest, or is frozen, so it has no locks (${text}). Let Nest make it, or in a ` +
          `unit test use Test.createTestingModule({ imports: [LockTestingModule.forRoot()], providers: [${this.constructor.name}] }).`,
      );
    },
    set(this: object, service: unknown) {
      put(this, token, service);
    },
  });
  return token;
}

/**
 * What sits there.
 *
 * @throws LockConfigError if Nest has not filled the seat
 */
export const inSeat = (instance: object, token: SeatToken): unknown =>
  (instance as Record<SeatToken, unknown>)[token];

/** Seats the service, if the instance has this seat. A service of another application that sits there waits behind it. */
export function sitDown(instance: object, token: SeatToken, service: unknown): void {
  if (!(token in instance)) return;
  const present = ownValue(instance, token);
  if (present === service) return;
  if (present !== undefined) put(instance, earlierOf(token), [...earlierAt(instance, token), present]);
  put(instance, token, service);
}

/** The service leaves the seat, unless nobody else could take it: then it says itself that it has ended. */
export function leaveSeat(instance: object, token: SeatToken, service: unknown): void {
  if (!(token in instance)) return;
  const others = earlierAt(instance, token).filter((other) => other !== service);
  if (ownValue(instance, token) === service && others.length > 0) put(instance, token, others.pop());
  if (Object.hasOwn(instance, earlierOf(token))) put(instance, earlierOf(token), others);
}

const earlierOf = (token: SeatToken): symbol => Symbol.for(`${token.description ?? ''} - earlier`);

const earlierAt = (instance: object, token: SeatToken): readonly unknown[] =>
  (ownValue(instance, earlierOf(token)) as readonly unknown[] | undefined) ?? [];

const ownValue = (instance: object, token: symbol): unknown =>
  Object.getOwnPropertyDescriptor(instance, token)?.value;

function put(instance: object, token: symbol, value: unknown): void {
  Object.defineProperty(instance, token, { value, configurable: true, writable: true });
}
