import { describe, expect, it } from 'vitest';
import { formatReason, formatValue } from '../../../lib/core/format.js';
import { compileKeyTemplate } from '../../../lib/decorators/key-template.js';

class Payment {
  readonly card = '4111 1111';
  readonly owner = { password: 'hunter2' };
}

describe('what an error message shows of a value', () => {
  it.each<[unknown, string]>([
    [undefined, 'undefined'],
    [null, 'null'],
    [1.5, '1.5'],
    [7n, '7n'],
    ['short', "'short'"],
    ['x'.repeat(41), 'a string of 41 characters'],
    [() => 1, 'a function'],
    [{}, '{}'],
    [{ password: 'hunter2', card: 4111 }, '{ password, card }'],
    [new Payment(), 'Payment { card, owner }'],
    [new Map([['password', 'hunter2']]), 'Map {}'],
    [Object.create(null), '{}'],
    [['hunter2', 'x'], 'an array of 2 values'],
    [Buffer.from('hunter2'), 'Buffer of 7 bytes'],
    [
      Object.fromEntries(Array.from('abcdefghijkl', (name) => [name, 1])),
      '{ a, b, c, d, e, f, g, h, i, j, … }',
    ],
    [{ ['n'.repeat(50)]: 1 }, '{ a name of 50 characters }'],
  ])('%o is %o', (value, text) => {
    expect(formatValue(value)).toBe(text);
  });

  it('does not read its properties', () => {
    const value = {
      get secret(): string {
        throw new Error('read');
      },
    };
    expect(formatValue(value)).toBe('{ secret }');
  });

  it('contains no value of a thrown object', () => {
    expect(formatReason({ password: 'hunter2' })).toBe('{ password }');
    expect(formatReason('a text')).toBe('a text');
    expect(formatReason(new Error('an error'))).toBe('an error');
  });

  it.each([
    [{ message: { code: 'E_REAL', secret: 1 } }, '{ code, secret }'],
    [{ message: 404 }, '404'],
    [{ message: undefined }, 'undefined'],
  ])('is in words what an error has as its message: %o', (own, said) => {
    expect(formatReason(Object.assign(new Error('x'), own))).toBe(said);
  });

  it('says so if the message cannot be read', () => {
    const refusing = {
      get message(): string {
        throw new Error('read');
      },
    };
    const error = Object.defineProperties(new Error('x'), Object.getOwnPropertyDescriptors(refusing));
    expect(formatReason(error)).toMatch(/cannot be read/);
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    expect(formatReason(proxy)).toMatch(/cannot be read/);
  });
});

it('a key template that is given an object names its properties, not their values', () => {
  const keyOf = compileKeyTemplate('pay:{0}', '@Locked on Shop.pay');
  expect(() => keyOf([new Payment()])).toThrow(/for \{0\}, got Payment \{ card, owner \}/);
  expect(() => keyOf([new Payment()])).not.toThrow(/4111|hunter2/);
});
