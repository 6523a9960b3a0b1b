import { expect, it } from 'vitest';
import { countParameters } from '../../../lib/decorators/decorated-method.js';

const sell = async function (product: string, count: number) {
  return `${count} of ${product}`;
};

it('counts the parameters of a method', () => {
  expect(countParameters(sell)).toBe(2);
});

it.each<[string, (...args: never[]) => unknown]>([
  ['a Proxy', new Proxy(sell, {})],
  ['bind()', sell.bind(undefined, 'product')],
])('does not count the parameters behind %s', (_, method) => {
  expect(countParameters(method as never)).toBeUndefined();
});
