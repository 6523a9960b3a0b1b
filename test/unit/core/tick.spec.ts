import { describe, expect, it } from 'vitest';
import { type TickState, findDeadTick, judgeTick } from '../../../lib/core/tick.js';
import {
  RUN_LEASE_MS,
  type TickCase,
  checkDecision,
  tickCases,
} from '../../../lib/testing/laws/tick-cases.js';

const NOW_MS = Date.UTC(2026, 0, 1);
const NOTHING: TickState = { nowMs: NOW_MS, claimed: undefined, heldForMs: 0, aliveUntilMs: 0 };

function stateAfter(before: TickCase['before']): TickState {
  if (before === 'nothing') return NOTHING;
  if (before === 'registration') return { ...NOTHING, claimed: { tickMs: NOW_MS, attempt: 0 } };
  const { tickInMs, attempt, state } = before;
  const heldForMs = state === 'held' ? RUN_LEASE_MS : 0;
  return {
    nowMs: NOW_MS,
    claimed: { tickMs: NOW_MS + tickInMs, attempt: state === 'ended' ? 0 : attempt },
    ...{ heldForMs, aliveUntilMs: NOW_MS + heldForMs },
  };
}

describe('the verdict about a tick', () => {
  it.each(tickCases.map((each) => [each.title, each] as const))('%s', (_, each) => {
    const { before, tickInMs, limits } = each;
    const verdict = judgeTick({ tickMs: NOW_MS + tickInMs, ...limits }, stateAfter(before));
    checkDecision(each, verdict, NOW_MS);
  });
});

describe('a dead run that may be taken over', () => {
  const dead = stateAfter({ tickInMs: 0, attempt: 1, state: 'released' });
  const limits = { staleAfterMs: 1_000, maxAttempts: 2 };

  it('is found until it is dead for too long', () => {
    expect(findDeadTick(limits, { ...dead, nowMs: NOW_MS + 1_000 })).toBe(NOW_MS);
    expect(findDeadTick(limits, { ...dead, nowMs: NOW_MS + 1_001 })).toBeUndefined();
  });

  it('is no run that lasts, has ended, or may not be repeated', () => {
    expect(findDeadTick(limits, { ...dead, heldForMs: 1 })).toBeUndefined();
    expect(findDeadTick(limits, { ...dead, claimed: { tickMs: NOW_MS, attempt: 0 } })).toBeUndefined();
    expect(findDeadTick({ staleAfterMs: 1_000 }, dead)).toBeUndefined();
    expect(findDeadTick(limits, NOTHING)).toBeUndefined();
  });
});
