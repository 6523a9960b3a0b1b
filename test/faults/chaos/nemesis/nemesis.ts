import type { WorkerPool } from '../workers/worker-pool.js';
import type { Random } from '../../../support/random.js';
import type { StoreUnderTest } from '../stores/store-under-test.js';

/** What a nemesis strikes. */
export interface NemesisContext {
  readonly store: StoreUnderTest;
  readonly workers: WorkerPool;
}

/** Something bad that happens, and passes. */
export interface Nemesis {
  readonly name: string;
  /** Of what strikes the store, one is at work at a time. */
  readonly target: 'process' | 'network' | 'store';
  /** No two may hold a lock at a time under it. Otherwise they may, and their writes must be told apart by fencing tokens. */
  readonly isInsideGuarantee: boolean;
  /**
   * Fencing tokens outlive each of these, but not both: a store that forgets the newest token makes the next one from its
   * clock. So no plan has both.
   */
  readonly harmsTokens?: 'forgets' | 'sets the clock back';
  /** Whether this world can be struck so. */
  appliesTo(store: StoreUnderTest): boolean;
  /** Settles when all is well again, as far as it is the nemesis' business. */
  inject(context: NemesisContext, random: Random): Promise<unknown>;
}
