import { expect, it } from 'vitest';
import { type ProcessHistory, acquisitionsOf, endOf, holdsOf } from './history.js';

const life: ProcessHistory = {
  worker: 'w',
  entries: [
    { type: 'asked', op: 'w:1', atMs: 1, key: 'key', leaseMs: 100, waitMs: 10 },
    { type: 'asked', op: 'w:2', atMs: 2, key: 'key', leaseMs: 100, waitMs: 10 },
    { type: 'granted', op: 'w:1', atMs: 3, fencingToken: '12345678901234567890', untilMs: 99 },
    { type: 'refused', op: 'w:2', atMs: 4, why: 'timeout' },
    { type: 'renewed', op: 'w:1', atMs: 50, untilMs: 149, leaseMs: 0 },
    { type: 'added', op: 'w:1', atMs: 60, list: 'fenced', item: 'x' },
    { type: 'releasing', op: 'w:1', atMs: 70 },
    { type: 'released', op: 'w:1', atMs: 80, result: 'ours' },
  ],
};

it('the lines of a wish tell what became of it', () => {
  const asks = acquisitionsOf([life]);
  expect(asks).toHaveLength(2);
  expect(asks[1]).toMatchObject({ op: 'w:2', askedAtMs: 2, answeredAtMs: 4, refused: 'timeout' });
  expect(holdsOf(asks)).toEqual([
    {
      ...{ op: 'w:1', worker: 'w', key: 'key', leaseMs: 100, askedAtMs: 1, fromMs: 3, untilMs: 149 },
      ...{ fencingToken: 12345678901234567890n, lastValidAtMs: -Infinity, killedAtMs: undefined },
      ...{ releasingAtMs: 70, releasedAtMs: 80, released: 'ours', added: { fenced: ['x'], unfenced: [] } },
    },
  ]);
});

it('a lock is valid until it runs out, is given back, is lost, or its holder is killed', () => {
  const [hold] = holdsOf(acquisitionsOf([{ ...life, entries: life.entries.slice(0, 5) }]));
  expect(endOf(hold!)).toBe(149);
  expect(endOf({ ...hold!, releasingAtMs: 70 })).toBe(70);
  expect(endOf({ ...hold!, lostAtMs: 60 })).toBe(60);
  expect(endOf({ ...hold!, killedAtMs: 55 })).toBe(55);
});

it('but it counts as valid for as long as it was seen to be', () => {
  const [hold] = holdsOf(acquisitionsOf([life]));
  expect(endOf({ ...hold!, lastValidAtMs: 500 })).toBe(500);
});
