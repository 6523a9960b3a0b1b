import { describe, expect, it } from 'vitest';
import { type Model, type Operation, isLinearizable } from './linearizability.js';

type Input = { readonly write: number } | { readonly read: number };

const register: Model<number, Input> = {
  initial: 0,
  step: (state, input) => ('write' in input ? input.write : input.read === state ? state : undefined),
  nameOf: String,
};

const operation = (callMs: number, returnMs: number, input: Input): Operation<Input> => ({
  callMs,
  returnMs,
  input,
});

describe('a register is linearizable', () => {
  it('green: nothing has happened', () => {
    expect(isLinearizable([], register)).toBe(true);
  });

  it('green: readings beside a write see the old or the new', () => {
    const history = [
      operation(0, 10, { write: 1 }),
      operation(1, 4, { read: 0 }),
      operation(2, 3, { read: 0 }),
      operation(5, 6, { read: 1 }),
    ];
    expect(isLinearizable(history, register)).toBe(true);
  });

  it('red: a reading goes back to the old', () => {
    const history = [
      operation(0, 10, { write: 1 }),
      operation(1, 2, { read: 1 }),
      operation(3, 4, { read: 0 }),
    ];
    expect(isLinearizable(history, register)).toBe(false);
  });

  it('red: a reading sees what was never written', () => {
    expect(isLinearizable([operation(0, 1, { read: 7 })], register)).toBe(false);
  });

  it('green: a write without an answer takes effect late, or never', () => {
    const unknown = operation(0, Infinity, { write: 1 });
    expect(
      isLinearizable([unknown, operation(5, 6, { read: 0 }), operation(7, 8, { read: 1 })], register),
    ).toBe(true);
    expect(isLinearizable([unknown, operation(5, 6, { read: 0 })], register)).toBe(true);
  });

  it('red: it cannot take effect before it was called, or twice', () => {
    const unknown = operation(5, Infinity, { write: 1 });
    expect(isLinearizable([unknown, operation(1, 2, { read: 1 })], register)).toBe(false);
    const back = [
      operation(6, 7, { read: 1 }),
      operation(8, 9, { write: 0 }),
      operation(10, 11, { read: 1 }),
    ];
    expect(isLinearizable([unknown, ...back], register)).toBe(false);
  });

  it('agrees with a search through all orders, on histories made by chance', () => {
    let state = 1;
    const chance = (below: number) => (state = (state * 48_271) % 2_147_483_647) % below;
    for (let round = 0; round < 300; round += 1) {
      const history = Array.from({ length: 5 }, () => {
        const callMs = chance(12);
        const returnMs = chance(6) === 0 ? Infinity : callMs + 1 + chance(6);
        return operation(callMs, returnMs, chance(2) ? { write: chance(3) } : { read: chance(3) });
      });
      expect(isLinearizable(history, register)).toBe(hasOrder(history, 0));
    }
  });
});

/** Slow, and plainly right. */
function hasOrder(left: readonly Operation<Input>[], state: number): boolean {
  if (left.every(({ returnMs }) => returnMs === Infinity)) return true;
  return left.some((first) => {
    const others = left.filter((other) => other !== first);
    if (others.some(({ returnMs }) => returnMs < first.callMs)) return false;
    const next = register.step(state, first.input);
    return next !== undefined && hasOrder(others, next);
  });
}
