import { describe, expect, it } from 'vitest';
import fc from 'fast-check';
import { LockConfigError } from '../../../lib/core/errors.js';
import { compileKeyTemplate } from '../../../lib/decorators/key-template.js';
import { lockKey } from '../../../lib/decorators/lock-key.js';

const compile = (template: string) => compileKeyTemplate(template, '@Locked on Shop.buy');

describe('a key template', () => {
  it.each([
    ['report', [], 'report'],
    ['order:{0}', [42], 'order:42'],
    ['order:{0}', ['a:b'], 'order:a%3Ab'],
    ['{0}', [true], 'true'],
    ['{1}/{0}', ['a', 'b/c'], 'b%2Fc/a'],
    ['order:{0.id}', [{ id: 7n }], 'order:7'],
    ['{0.a.b.c}', [{ a: { b: { c: 'deep' } } }], 'deep'],
    ['{0.length}', ['four'], '4'],
    ['user:{0}', ['Ünïcödé 😀 x'], 'user:Ünïcödé 😀 x'],
    ['half:{0}', ['50%'], 'half:50%25'],
  ])('%o with %o is %o', (template, args, key) => {
    expect(compile(template)(args)).toBe(key);
  });

  it.each([
    ['order:{0}', [''], '{0}'],
    ['{0}/{1.id}', ['a', { id: '' }], '{1.id}'],
  ])(
    '%o with %o is refused, because all callers without a value would share it',
    (template, args, placeholder) => {
      expect(() => compile(template)(args)).toThrow(LockConfigError);
      expect(() => compile(template)(args)).toThrow(
        `@Locked on Shop.buy: expected a value for ${placeholder}, got an empty text`,
      );
    },
  );

  it.each([
    '{}',
    '{ }',
    'order:{}',
    'order:{ 0 }',
    'a}b',
    '{{0}}',
    '{0',
    '0}',
    '{0.}',
    '{.id}',
    '{-1}',
    '{1.5e3',
  ])('%o is refused at definition', (template) => {
    expect(() => compile(template)).toThrow(LockConfigError);
  });

  it.each([['{0}:{1}'], ['a{0}-{1}z'], ['{0}/x{1}'], ['{0}a%b{1}:{2}'], ['{0}, {1}'], ['{0}::{1}']])(
    '%o never gives one key to two lists of values',
    (template) => {
      const keyOf = compile(template);
      const piece = fc.string({
        unit: fc.constantFrom('a', 'b', ':', '-', '/', '%', 'x', ',', ' ', '3', 'A'),
        minLength: 1,
        maxLength: 5,
      });
      const values = fc.tuple(piece, piece, piece);
      fc.assert(
        fc.property(values, values, (some, others) => {
          const used = template.includes('{2}') ? 3 : 2;
          const isSame = some.slice(0, used).join('\0') === others.slice(0, used).join('\0');
          expect(keyOf(some) === keyOf(others)).toBe(isSame);
        }),
        { numRuns: 5_000 },
      );
    },
  );
});

it('lockKey() gives the key of the template, also for values that are escaped', () => {
  for (const values of [['42'], ['eu:42'], ['50%'], [7]])
    expect(lockKey('order:{0}', ...values)).toBe(compile('order:{0}')(values));
  expect(lockKey('order:{0.id}:{1}', { id: 'a:b' }, 'c')).toBe('order:a%3Ab:c');
  expect(() => lockKey('order:{0}', undefined)).toThrow('lockKey(): expected a string');
  expect(() => lockKey('order:{1}', 'a')).toThrow(LockConfigError);
});
