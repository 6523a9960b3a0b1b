import { addMethodMetadata, readMethodMetadata } from '../decorators/method-metadata.js';
import type { Method } from '../decorators/method-replacement.js';

/** The metadata that an election decorator stores on a method. */
export interface ElectionMetadata {
  readonly name: string;
  /** The name of the module whose elections are used. */
  readonly service: string | undefined;
  /** The lease of the election, if this method sets it. */
  readonly leaseMs?: number | undefined;
  readonly kind: 'elected' | 'revoked' | 'only';
}

interface MethodTarget {
  readonly target: object;
  readonly name: string | symbol;
}

const ELECTION_METADATA = Symbol.for('nestjs-distributed-lock:election');

/** A method may have several metadata objects, for several elections. A decorator above it may hide some of them. */
export function readElectionMetadata(
  method: Method,
  { target, name }: MethodTarget,
): ReadonlySet<ElectionMetadata> {
  const methodMetadata = Reflect.getMetadata(ELECTION_METADATA, method) as
    readonly ElectionMetadata[] | undefined;
  const classMetadata = readMethodMetadata<ElectionMetadata>(ELECTION_METADATA, target, name).map(
    ({ value }) => value,
  );
  return new Set([...classMetadata, ...(methodMetadata ?? [])]);
}

export function addElectionMetadata(
  method: Method,
  methodTarget: MethodTarget,
  metadata: ElectionMetadata,
): void {
  const existing = Reflect.getMetadata(ELECTION_METADATA, method) as readonly ElectionMetadata[] | undefined;
  Reflect.defineMetadata(ELECTION_METADATA, [...(existing ?? []), metadata], method);
  addMethodMetadata(ELECTION_METADATA, { ...methodTarget, method, value: metadata });
}
