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

const MARKS = Symbol.for('nestjs-distributed-lock:election');

/** A method may have several, in several elections. */
export const marksOf = (method: Method): readonly ElectionMark[] =>
  (Reflect.getMetadata(MARKS, method) as readonly ElectionMark[] | undefined) ?? [];

export const markMethod = (method: Method, mark: ElectionMark): void =>
  Reflect.defineMetadata(MARKS, [...marksOf(method), mark], method);
