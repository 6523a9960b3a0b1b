import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { afterAll, beforeAll, expect } from 'vitest';

/** Specs that acquire locks in opposite orders on purpose, or publish that event themselves. */
const ON_PURPOSE = [
  'test/nest/board/recent-events.spec.ts',
  'test/nest/lock-order.spec.ts',
  'test/nest/opentelemetry.spec.ts',
  'test/properties/lock-order.spec.ts',
  'test/unit/core/kinds/read-write.spec.ts',
  'test/unit/core/lock-order.spec.ts',
];

const CHANNEL = 'nestjs-distributed-lock:order-inverted';

/** No other spec may be told that its locks could wait for each other: the detector would be wrong, or the code. */
const inversions: unknown[] = [];
const onInverted = (message: unknown) => void inversions.push(message);

beforeAll(() => subscribe(CHANNEL, onInverted));
afterAll(() => {
  unsubscribe(CHANNEL, onInverted);
  const { testPath = '' } = expect.getState();
  if (!ON_PURPOSE.some((path) => testPath.endsWith(path))) expect(inversions).toEqual([]);
});
