import { expect, it } from 'vitest';
import { templateOf } from '../../../lib/core/event-template.js';

it.each([
  ['report', 'report'],
  ['order:42', 'order:{n}'],
  ['order:42:line:7', 'order:{n}:line:{n}'],
  ['daily-report-2026-11-23-eu', 'daily-report-{n}-{n}-{n}-eu'],
  ['report2026', 'report{n}'],
  ['user-550e8400-e29b-41d4-a716-446655440000:mail', 'user-{id}:mail'],
  ['ulid:01ARZ3NDEKTSV4RRFFQ69G5FAV', 'ulid:{id}'],
  ['nanoid:V1StGXR8_Z5jdHi6B-myT', 'nanoid:{id}'],
  ['invoice-507f1f77bcf86cd799439011', 'invoice-{id}'],
  ['café:😀7', 'café:😀{n}'],
])('the key %j is counted as %j', (key, template) => {
  expect(templateOf(key)).toBe(template);
});

it('ten thousand keys of one kind are counted as one', () => {
  const keys = Array.from(
    { length: 10_000 },
    (_, index) => `order:${index}:by:${index.toString(16).padStart(24, '0')}a`,
  );
  expect(new Set(keys.map(templateOf)).size).toBe(1);
});
