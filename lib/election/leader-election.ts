import { Inject } from '@nestjs/common';
import { SharedAcrossCopies } from '../core/package-copies.js';
import { checkModuleName, decoratorNotCalledError } from '../decorators/decorated-method.js';
import { getPropertyToken } from '../decorators/injected-property.js';
import type { Candidate } from './candidate.js';
import type { ElectionOptions } from './election.options.js';
import type { Elections } from './elections.js';

/** Elections, by injection: of many replicas, one leads. */
@SharedAcrossCopies('LeaderElection')
export class LeaderElection {
  readonly #elections: Elections;

  /** Made by `DistributedLockModule`; not by hand. */
  constructor(elections: Elections) {
    this.#elections = elections;
  }

  /**
   * Makes this process a candidate, who stands in line until it leads, and stands in line again when that is over. It
   * begins when every `onApplicationBootstrap` has ended, so that a leader can do its work: a lifecycle hook that awaits a leader
   * waits for ever. The log warns of a boot that takes more than 10 s where an election has been joined. A candidate keeps the process alive until it
   * leaves or the application shuts down.
   *
   * A process is one candidate in an election: joining again answers the same one, which decorators share too.
   *
   * @throws LockConfigError for a wrong name or option, or if this process stands with another `leaseMs` already
   * @throws LockShutdownError when the application is shutting down
   */
  join(name: string, options?: ElectionOptions): Candidate {
    return this.#elections.join(name, options);
  }
}

/** What Nest knows it by: the class itself, or a text for a named module. */
export const getLeaderElectionToken = (name?: string): typeof LeaderElection | string =>
  name === undefined ? LeaderElection : `${name}LeaderElection`;

/** Injects that of the module with this name; without one, of the unnamed module. */
export function InjectLeaderElection(name?: string): PropertyDecorator & ParameterDecorator;
export function InjectLeaderElection(
  name?: string,
  ...more: unknown[]
): PropertyDecorator & ParameterDecorator {
  if (more.length > 0) throw decoratorNotCalledError('InjectLeaderElection', name, more[0]);
  checkModuleName('InjectLeaderElection', name);
  return Inject(getLeaderElectionToken(name));
}

/** Where the elections of the module with this name sit. */
export const getElectionsPropertyToken = (name?: string) => getPropertyToken('LeaderElection', name);
