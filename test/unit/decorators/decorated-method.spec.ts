import { expect, it } from '@jest/globals';
import { countParameters } from '../../../lib/decorators/decorated-method.js';

const sell = async function (product: string, count: number) {
  return `${count} of ${product}`;
};

it('the parameters of a method are counted', () => {
  expect(countParameters(sell)).toBe(2);
});

it.each<[string, (...args: never[]) => unknown]>([
  ['a Proxy', new Proxy(sell, {})],
  ['bind()', sell.bind(undefined, 'product')],
])('the parameters behind %s are not', (_, method) => {
  expect(countParameters(method as never)).toBeUndefined();
});
