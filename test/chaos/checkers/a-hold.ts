import type { Hold } from '../history.js';
import type { Strike } from '../strike.js';

/** A hold of one key as specs need it: asked for and granted at `fromMs`, valid until `untilMs`. */
export function aHold(told: Partial<Hold> & Pick<Hold, 'op' | 'fencingToken' | 'fromMs' | 'untilMs'>): Hold {
  return {
    worker: told.op,
    key: 'key',
    leaseMs: 1_000,
    askedAtMs: told.fromMs,
    seenValidAtMs: -Infinity,
    added: { fenced: [], unfenced: [] },
    ...told,
  };
}

export const aStrike = (told: Pick<Strike, 'struckAtMs' | 'healedAtMs' | 'isInsideGuarantee'>): Strike => ({
  nemesis: 'of a spec',
  ...told,
});
