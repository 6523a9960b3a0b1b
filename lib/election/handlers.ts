import type { LeaderTerm } from './candidate.js';

/** A method that runs when a term begins or ends. */
export interface Handler {
  /** The method in words, for reports. */
  readonly place: string;
  run(term: LeaderTerm): unknown;
  /** Of a job that runs on the leader: whether this process fires it now. */
  isFiring?(): boolean;
}

/** What this process does in an election. */
export interface Handlers {
  readonly elected: Handler[];
  readonly revoked: Handler[];
}

export const noHandlers = (): Handlers => ({ elected: [], revoked: [] });
