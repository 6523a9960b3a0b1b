import type { CallSeen, SectionSeen } from '../history.js';
import { groupBy } from '../group-by.js';
import type { Judge, Seen } from './judge.js';
import { overlaps } from './overlaps.js';

const callOf = ({ worker, call }: SectionSeen) => `${worker}:${call}`;

/** Each call enters its section once, or not at all if it timed out; no two are inside at once while their locks are valid. */
export class LockingJudge implements Judge {
  readonly isNeeded = () => false;

  judge({ history: { calls, sections } }: Seen) {
    const perCall = groupBy(sections, callOf);
    const entries = (call: CallSeen) => perCall.get(`${call.worker}:${call.number}`)?.length ?? 0;
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
