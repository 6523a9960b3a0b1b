import { describe, expect, it } from 'vitest';
import { buildHold, buildFault } from './sample-records.js';
import { type Attempt, checkRegister } from './fenced-register.js';

const [a, b] = [
  buildHold({ op: 'a', fencingToken: 1n, fromMs: 0, untilMs: 100 }),
  buildHold({ op: 'b', fencingToken: 2n, fromMs: 110, untilMs: 200 }),
];
const attempt = (op: string, fencingToken: bigint, atMs: number, wasAccepted = true): Attempt => ({
  ...{ key: 'key', verb: 'write', op, fencingToken, atMs, wasAccepted },
});
const check = (...attempts: Attempt[]) => checkRegister(attempts, [a, b], []);

describe('a register that looks at fencing tokens', () => {
  it('green: who has lost the lock is refused once a newer one was seen', () => {
    const verdict = check(attempt('a', 1n, 50), attempt('b', 2n, 120), attempt('a', 1n, 130, false));
    expect(verdict).toEqual({ accepted: 2, refused: 1, stale: [], wronglyRefused: [] });
  });

  it('red: a write with an older token is accepted', () => {
    const stale = attempt('a', 1n, 130);
    expect(check(attempt('b', 2n, 120), stale).stale).toEqual([stale]);
  });

  it('red: somebody writes between two writes of another', () => {
    const back = attempt('a', 1n, 130);
    expect(check(attempt('a', 1n, 50), attempt('b', 1n, 120), back).stale).toEqual([back]);
  });

  it('red: who has the lock is refused', () => {
    const refused = attempt('a', 1n, 60, false);
    expect(check(attempt('b', 2n, 50), refused).wronglyRefused).toEqual([refused]);
  });

  it('who has a lock that a strike outside of the guarantee made forgotten may be refused', () => {
    const struck = buildFault({ startedAtMs: 40, healedAtMs: 45, isInsideGuarantee: false });
    const attempts = [attempt('b', 2n, 50), attempt('a', 1n, 60, false)];
    expect(checkRegister(attempts, [a, b], [struck]).wronglyRefused).toEqual([]);
  });
});
