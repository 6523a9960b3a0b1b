import { Faults } from '../core/faults.js';
import { SHORTEST_LEASE_MS, findTooLong } from '../core/options.js';
import { shown } from '../core/shown.js';

export interface ElectionOptions {
  /**
   * How long a leader that is not renewed counts as one, in ms; so also how long nobody leads after a crash. Renewed at a
   * third. All candidates should give the same.
   *
   * @default the module's `defaults.leaseMs`, else 15_000
   */
  leaseMs?: number;
}

export const BUILT_IN_ELECTION_LEASE_MS = 15_000;

const LONGEST_NAME = 255;

/** @throws LockConfigError */
export function checkElection(
  name: unknown,
  options: unknown,
  { defaultLeaseMs, maxLeaseMs }: { defaultLeaseMs: number; maxLeaseMs: number | undefined },
): void {
  const faults = new Faults();
  findNameFaults(faults, name);
  const { leaseMs } = faults.object('options', options, ['leaseMs']);
  faults.wholeMs('options.leaseMs', leaseMs, { min: SHORTEST_LEASE_MS });
  findTooLong(faults, `leaseMs of election ${shown(name)}`, leaseMs ?? defaultLeaseMs, maxLeaseMs);
  faults.throwIfAny('Wrong election');
}

export function findNameFaults(faults: Faults, name: unknown): void {
  faults.requiredText('the name of the election', name, { max: LONGEST_NAME });
}
