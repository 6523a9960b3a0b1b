import { formatValue } from '../core/format.js';
import { OptionErrors } from '../core/option-errors.js';
import { MIN_LEASE_MS, collectMaxLeaseErrors } from '../core/options.js';

export interface ElectionOptions {
  /**
   * How long a term lasts without a renewal, in ms. If the leader crashes, no process leads for up to this time. The
   * lease is renewed after a third of it. Set the same value in all processes.
   *
   * @default the module's `defaults.leaseMs`, else 15_000
   */
  leaseMs?: number;
}

/** What an election decorator stores about a method. A method may have it several times, for several elections. */
export interface ElectionMetadata {
  readonly name: string;
  /** The name of the module whose elections are used. */
  readonly service: string | undefined;
  /** The lease of the election, if this method sets it. */
  readonly leaseMs?: number | undefined;
  readonly kind: 'elected' | 'revoked' | 'only';
}

export const ELECTION_METADATA = Symbol.for('nestjs-distributed-lock:election');

export const BUILT_IN_ELECTION_LEASE_MS = 15_000;

const MAX_NAME_LENGTH = 255;

/** @throws LockConfigError */
export function checkElectionOptions(
  name: unknown,
  options: unknown,
  { defaultLeaseMs, maxLeaseMs }: { defaultLeaseMs: number; maxLeaseMs: number | undefined },
): void {
  const errors = new OptionErrors();
  collectNameErrors(errors, name);
  const { leaseMs } = errors.object('options', options, ['leaseMs']);
  errors.integerMs('options.leaseMs', leaseMs, { min: MIN_LEASE_MS });
  collectMaxLeaseErrors(
    errors,
    `leaseMs of election ${formatValue(name)}`,
    leaseMs ?? defaultLeaseMs,
    maxLeaseMs,
  );
  errors.throwIfAny('Wrong election');
}

export function collectNameErrors(errors: OptionErrors, name: unknown): void {
  errors.requiredText('the name of the election', name, { max: MAX_NAME_LENGTH });
}
