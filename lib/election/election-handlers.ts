import type { LeaderTerm } from './candidate.js';

/** A method that runs when a term begins or ends. */
export interface ElectionHandler {
  /** The method's description for events and logs. */
  readonly location: string;
  run(term: LeaderTerm): unknown;
  /** Only for a job that runs on the leader: whether the scheduler of this process fires it now. */
  isFiring?(): boolean;
}

/** The handlers of this process in an election. */
export interface ElectionHandlers {
  readonly elected: ElectionHandler[];
  readonly revoked: ElectionHandler[];
}

export const createElectionHandlers = (): ElectionHandlers => ({ elected: [], revoked: [] });
