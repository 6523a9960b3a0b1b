import { expect, it } from 'vitest';
import { isSameValue } from '../../../../../lib/backends/typeorm/rows/comparable-value.js';

it.each([
  ['two dates that the driver could not read', new Date(NaN), new Date(NaN), true],
  ['two dates of the same time', new Date(5), new Date(5), true],
  ['two dates of different times', new Date(5), new Date(6), false],
  ['a date that the driver could not read, and null', new Date(NaN), null, false],
])('%s: whether they count as the same value', (_, one, other, isSame) => {
  expect(isSameValue(one, other)).toBe(isSame);
});
