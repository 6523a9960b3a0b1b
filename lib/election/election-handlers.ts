import type { LeaderTerm } from './candidate.js';

/** A method that runs when a term begins or ends. */
export interface ElectionHandler {
  /** The method in words, for reports. */
  readonly location: string;
  run(term: LeaderTerm): unknown;
  /** Of a job that runs on the leader: whether this process fires it now. */
  isFiring?(): boolean;
}

/** What this process does in an election. */
export interface ElectionHandlers {
  readonly elected: ElectionHandler[];
  readonly revoked: ElectionHandler[];
}

export const createElectionHandlers = (): ElectionHandlers => ({ elected: [], revoked: [] });
