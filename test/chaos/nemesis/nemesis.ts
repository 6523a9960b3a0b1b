import type { Crew } from '../crew.js';
import type { Random } from '../../random.js';
import type { World } from '../worlds/world.js';

/** What a nemesis strikes. */
export interface Scene {
  readonly world: World;
  readonly crew: Crew;
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
  fits(world: World): boolean;
  /** Settles when all is well again, as far as it is the nemesis' business. */
  strike(scene: Scene, random: Random): Promise<unknown>;
}
