import { expect, it } from 'vitest';
import { type DeferredTick, DeferredTicks } from '../../../lib/schedule/deferred-ticks.js';
import type { Job } from '../../../lib/schedule/job.js';

const deferred = (tickMs: number): DeferredTick => ({ tick: { tickMs, periodMs: 1_000 } });

it.each([
  [1, 2],
  [2, 1],
])(
  'the newest deferred tick is claimed again, in whichever order they are refused: %i, %i',
  async (...order) => {
    const [claimed, skipped]: number[][] = [[], []];
    const deferredTicks = new DeferredTicks({
      claimAgain: (_job, { tick }) => claimed!.push(tick.tickMs),
      onSkipped: (_job, { tickMs }) => skipped!.push(tickMs),
    });
    const job = {} as Job;
    const ended = Promise.resolve();
    for (const tickMs of order) deferredTicks.defer(job, deferred(tickMs), ended);
    await ended;
    expect({ claimed, skipped }).toEqual({ claimed: [2], skipped: [1] });
  },
);
