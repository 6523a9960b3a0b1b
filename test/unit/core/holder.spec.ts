import { expect, it } from 'vitest';
import { createHolder, isOfWriter, isSameProcess } from '../../../lib/core/holder.js';

it('a holder is that of a writer only if it has the mark, whatever its number is', () => {
  const numbers = Array.from({ length: 2_000 }, (_, number) => number);
  expect(numbers.filter((number) => isOfWriter(createHolder('abc', number)))).toEqual([]);
  expect(numbers.filter((number) => !isOfWriter(createHolder('abc', number, true)))).toEqual([]);
  expect(
    new Set(numbers.flatMap((number) => [createHolder('a', number), createHolder('a', number, true)])).size,
  ).toBe(4_000);
});

it('holders of one process have one session', () => {
  expect(isSameProcess(createHolder('abc', 1), createHolder('abc', 32, true))).toBe(true);
  expect(isSameProcess(createHolder('abc', 1), createHolder('abcd', 1))).toBe(false);
});
