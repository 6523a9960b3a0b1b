import { describe, expect, it } from 'vitest';
import { OptionErrors } from '../../../lib/core/option-errors.js';
import { collectTokenMemoryErrors } from '../../../lib/core/token-memory-options.js';

function check(value: unknown): void {
  const errors = new OptionErrors();
  collectTokenMemoryErrors(errors, value);
  errors.throwIfAny('Wrong options');
}

describe('tokenMemoryMs', () => {
  it.each([undefined, 1_000, 60_000, 2 ** 31 - 1])('may be %j', (value) => {
    expect(() => check(value)).not.toThrow();
  });

  it.each([0, 999, 1_000.5, -1, Infinity, NaN, '60000', null])('may not be %j', (value) => {
    expect(() => check(value)).toThrow(
      /expected tokenMemoryMs to be a whole number of milliseconds from 1000 to 2147483647, got/,
    );
  });
});
