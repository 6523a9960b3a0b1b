import { formatValue } from '../core/format.js';
import type { Locks } from '../core/locks.js';
import { OptionErrors } from '../core/option-errors.js';
import { type LeaseLimits, MIN_LEASE_MS, collectLeaseLimitErrors } from '../core/options.js';
import type { TimerWheel } from '../core/timer-wheel.js';
import type { LeaderTerm } from './candidate.interface.js';

export interface ElectionOptions {
  /**
   * How long a term lasts without a renewal, in ms. If the leader crashes, no process leads for up to this time. The
   * lease is renewed after a third of it. Set the same value in all processes.
   *
   * @default the module's `defaults.leaseMs`, else 15_000
   */
  leaseMs?: number;
}

/** A method that runs when a term begins or ends. */
export interface ElectionHandler {
  /** The method's description for events and logs. */
  readonly location: string;
  run(term: LeaderTerm): unknown;
  /** Only for a job that runs on the leader: whether the scheduler of this process fires it now. */
  isFiring?(): boolean;
}

interface ElectionParts {
  readonly name: string;
  readonly locks: Locks;
  readonly timerWheel: TimerWheel;
}

/** What the candidate, the terms and the observer of one election share. */
export class Election {
  readonly name: string;
  readonly locks: Locks;
  readonly timerWheel: TimerWheel;
  /** The handlers that run when a term begins. */
  readonly elected: ElectionHandler[] = [];
  /** The handlers that run when a term ends. */
  readonly revoked: ElectionHandler[] = [];
  /** For an election with jobs of the scheduler: functions that return whether the scheduler of this process fires one of them. */
  readonly firingChecks: (() => boolean)[] = [];
  /** As a caller or a decorator has given it, if any has. */
  leaseMs: number | undefined;

  constructor({ name, locks, timerWheel }: ElectionParts) {
    this.name = name;
    this.locks = locks;
    this.timerWheel = timerWheel;
  }

  /** Whether this process fires a job of the election, or the election has no jobs of the scheduler. */
  mayLead(): boolean {
    if (this.firingChecks.length === 0 || this.firingChecks.some((isFiring) => isFiring())) return true;
    return this.elected.some((handler) => handler.isFiring?.());
  }

  /** Whether only a candidate needs this object. */
  get isEmpty(): boolean {
    return this.elected.length + this.revoked.length + this.firingChecks.length === 0;
  }
}

/** @throws LockConfigError */
export function checkElectionOptions(
  name: unknown,
  options: unknown,
  { defaultLeaseMs, leaseLimits }: { defaultLeaseMs: number; leaseLimits: LeaseLimits },
): void {
  const errors = new OptionErrors();
  collectNameErrors(errors, name);
  const { leaseMs = defaultLeaseMs } = errors.object('options', options, ['leaseMs']);
  errors.integerMs('options.leaseMs', leaseMs, { min: MIN_LEASE_MS });
  collectLeaseLimitErrors(errors, `leaseMs of election ${formatValue(name)}`, leaseMs, leaseLimits);
  errors.throwIfAny('Wrong election');
}

export function collectNameErrors(errors: OptionErrors, name: unknown): void {
  errors.requiredText('the name of the election', name, { max: 255 });
}
