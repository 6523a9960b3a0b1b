import { keepForMethod, keptFor } from '../decorators/method-metadata.js';
import type { Method } from '../decorators/replace-method.js';

/** What a decorator says of a method. */
export interface ElectionMark {
  readonly name: string;
  /** The name of the module. */
  readonly service: string | undefined;
  /** The lease of the election, if this method gives it. */
  readonly leaseMs?: number | undefined;
  readonly when: 'elected' | 'revoked' | 'only';
}

interface Place {
  readonly target: object;
  readonly name: string | symbol;
}

const MARKS = Symbol.for('nestjs-distributed-lock:election');

/** A method may have several, in several elections. A decorator above may hide some of them. */
export function marksOf(method: Method, { target, name }: Place): ReadonlySet<ElectionMark> {
  const visible = Reflect.getMetadata(MARKS, method) as readonly ElectionMark[] | undefined;
  const kept = keptFor<ElectionMark>(MARKS, target, name).map(({ value }) => value);
  return new Set([...kept, ...(visible ?? [])]);
}

export function markMethod(method: Method, place: Place, mark: ElectionMark): void {
  const present = Reflect.getMetadata(MARKS, method) as readonly ElectionMark[] | undefined;
  Reflect.defineMetadata(MARKS, [...(present ?? []), mark], method);
  keepForMethod(MARKS, { ...place, method, value: mark });
}
