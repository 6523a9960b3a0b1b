import { expect, it } from 'vitest';
import { Keyspace, entriesOf, isNearLast, keyOfTick } from '../../../../lib/backends/zookeeper/keyspace.js';

const keyspace = new Keyspace('/locks');
const nameOf = (key: string, holder: string, sequence: string) =>
  keyspace.lock(key, holder).slice(keyspace.bucketOf(key).length + 1) + sequence;

it('the oldest entry of a key comes first, also after the numbers have begun again', () => {
  const names = ['2147483646', '-2147483648', '2147483647', '-2147483647'].map((sequence, index) =>
    nameOf('key', `holder ${index}`, sequence),
  );
  expect(entriesOf('/bucket', names, 'key').map(({ holder }) => holder)).toEqual([
    ...['holder 0', 'holder 2', 'holder 1', 'holder 3'],
  ]);
});

it('a key is returned as it was, and no other key has its entries', () => {
  const keys = ['a', 'a@', 'a/b', '.', '..', 'é 😀', '%40', 'a@b@0000000001', '\u0001\ud7ff\uffff'];
  const names = keys.map((key) => nameOf(key, 'h@-/1', '0000000007'));
  for (const key of keys) expect(entriesOf('/b', names, key).map((entry) => entry.key)).toEqual([key]);
  expect(entriesOf('/b', names).map(({ holder }) => holder)).toEqual(keys.map(() => 'h@-/1'));
  for (const key of keys) expect(keyOfTick(keyspace.tick(key).slice(keyspace.ticks.length + 1))).toBe(key);
  for (const name of names) expect(name).toMatch(/^[\x21-\x7e]+$/);
});

it('what others have put there is no entry', () => {
  expect(entriesOf('/b', ['lock-0000000001', 'a@b@1', '%@h@0000000001', '@'], undefined)).toEqual([]);
});

it('a node that others have put among the ticks is the record of no key', () => {
  for (const name of ['%@', 'a%zz@', 'foreign', '']) expect(keyOfTick(name)).toBeUndefined();
});

it('an entry close to the end of the numbers, or after it, is near the last one', () => {
  const near = ['2146483648', '2147483647', '-2147483648', '-000000001'];
  for (const sequence of near) expect(isNearLast(keyspace.lock('key', 'h@') + sequence)).toBe(true);
  for (const sequence of ['0000000000', '2146483647'])
    expect(isNearLast(keyspace.lock('key', 'h@') + sequence)).toBe(false);
});
