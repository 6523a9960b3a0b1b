import { describe, expect, it } from 'vitest';
import { In, IsNull, LessThan, Not } from 'typeorm';
import { checkWhere, copyWhere } from '../../../../../lib/backends/typeorm/rows/where-conditions.js';
import { LockConfigError } from '../../../../../lib/core/errors.js';

describe('a condition', () => {
  it.each([
    [{ id: 7 }],
    [{ id: 0, name: '' }],
    [{ owner: { id: 7 } }],
    [{ at: new Date(), bytes: Buffer.of(1), tags: [] }],
    [{ worker: IsNull(), id: Not(In([])) }],
  ])('is accepted: %j', (where) => expect(() => checkWhere('where', where)).not.toThrow());

  it.each([
    [undefined],
    [7],
    [{}],
    [[{ id: 7 }]],
    [{ id: undefined }],
    [{ id: 7, name: null }],
    [{ owner: {} }],
    [{ owner: { id: undefined } }],
    [{ id: { tenant: undefined, no: 7 } }],
    [{ id: { tenant: null, no: 7 } }],
  ])('is rejected: %j', (where) => expect(() => checkWhere('where', where)).toThrow(LockConfigError));

  it('names what is missing', () => {
    expect(() => checkWhere('from', { id: 7, name: undefined })).toThrow(
      'expected from.name to be a value, got undefined (IsNull() finds null)',
    );
  });

  it('is unchanged after a use', () => {
    const where = { id: Not(In([1, 2])), at: LessThan(3), name: 'x' };
    const used = copyWhere(where);
    used.id.transformValue({ to: String, from: Number });
    used.at.transformValue({ to: String, from: Number });
    expect([used.id.value, used.at.value, used.name]).toEqual([['1', '2'], '3', 'x']);
    expect([where.id.value, where.at.value]).toEqual([[1, 2], 3]);
  });

  it('is unchanged within an embedded object too, and if objects refer to each other', () => {
    const where = { name: { state: In([1]) }, owner: {} };
    where.owner = { id: 1, of: where };
    const used = copyWhere(where);
    used.name.state.transformValue({ to: String, from: Number });
    expect(used).toMatchObject({ name: { state: { value: ['1'] } }, owner: { id: 1 } });
    expect(where.name.state.value).toEqual([1]);
  });
});
