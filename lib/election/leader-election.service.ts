import { SharedAcrossCopies } from '../core/package-copies.js';
import { createInjectDecorator } from '../decorators/decorated-method.js';
import { getPropertyToken } from '../decorators/injected-property.js';
import type { Candidate } from './candidate.interface.js';
import type { ElectionOptions } from './election.js';
import type { Elections } from './elections.js';

/** Elects one leader among many replicas. Inject it. */
@SharedAcrossCopies('LeaderElection')
export class LeaderElection {
  readonly #elections: Elections;

  /** Created by `DistributedLockModule`; do not create it yourself. */
  constructor(elections: Elections) {
    this.#elections = elections;
  }

  /**
   * Joins the election and returns the candidate of this process. If its term ends, the process is a candidate again. A
   * candidate keeps the process alive until it leaves or the application shuts down.
   *
   * The election begins after every `onApplicationBootstrap` hook has ended. So do not await a leader in a lifecycle
   * hook: it would wait forever. If an election was joined and the boot takes more than 10 s, a warning is logged.
   *
   * A process has one candidate in each election. Joining again returns the same one, and decorators share it. After
   * {@link Candidate.leave}, it returns a new one, and the one of before never leads again.
   *
   * @throws LockConfigError for a wrong name or option, or if this process has joined with another `leaseMs` already
   * @throws LockShutdownError if the application is shutting down
   */
  join(name: string, options?: ElectionOptions): Candidate {
    return this.#elections.join(name, options);
  }
}

/** The provider token of `LeaderElection`: the class itself, or a text for a named module. */
export const getLeaderElectionToken = (name?: string): typeof LeaderElection | string =>
  name === undefined ? LeaderElection : `${name}LeaderElection`;

/** Injects the `LeaderElection` of the module with this name; without a name, that of the unnamed module. */
export const InjectLeaderElection: (name?: string) => PropertyDecorator & ParameterDecorator =
  createInjectDecorator('InjectLeaderElection', getLeaderElectionToken);

/** The property token of the elections of the module with this name. */
export const getElectionsPropertyToken = (name?: string) => getPropertyToken('LeaderElection', name);
