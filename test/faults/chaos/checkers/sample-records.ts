import type { Hold } from '../workers/history.js';
import type { InjectedFault } from '../injected-fault.js';

/** A hold of one key as specs need it: asked for and granted at `fromMs`, valid until `untilMs`. */
export function buildHold(
  fields: Partial<Hold> & Pick<Hold, 'op' | 'fencingToken' | 'fromMs' | 'untilMs'>,
): Hold {
  return {
    worker: fields.op,
    key: 'key',
    leaseMs: 1_000,
    askedAtMs: fields.fromMs,
    lastValidAtMs: -Infinity,
    added: { fenced: [], unfenced: [] },
    ...fields,
  };
}

export const buildFault = (
  fields: Pick<InjectedFault, 'startedAtMs' | 'healedAtMs' | 'isInsideGuarantee'>,
): InjectedFault => ({
  nemesis: 'of a spec',
  ...fields,
});
