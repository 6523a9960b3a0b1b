import type { CallRecord, SectionRecord } from '../history.js';
import { groupBy } from '../group-by.js';
import type { RecipeChecker, RoundEvidence } from './checker.js';
import { overlaps } from './overlaps.js';

const callOf = ({ worker, call }: SectionRecord) => `${worker}:${call}`;

/** Each call enters its section once, or not at all if it timed out; no two are inside at once while their locks are valid. */
export class LockingChecker implements RecipeChecker {
  readonly isNeeded = () => false;

  check({ history: { calls, sections } }: RoundEvidence) {
    const perCall = groupBy(sections, callOf);
    const entries = (call: CallRecord) => perCall.get(`${call.worker}:${call.number}`)?.length ?? 0;
    const doubled = calls.filter((call) => entries(call) > 1);
    const timedOut = calls.filter((call) => call.outcome === 'LOCK_TIMEOUT' && entries(call) > 0);
    return {
      effects: sections.length,
      lostUpdates: 0,
      doubleEffects: doubled.length,
      findings: [
        ...overlaps(sections),
        ...doubled.map(({ number, worker }) => `call ${number} of worker ${worker} ran twice`),
        ...timedOut.map(({ number, worker }) => `call ${number} of worker ${worker} timed out and ran`),
      ],
    };
  }
}
