import { expect, it } from 'vitest';
import { storedLockOf } from '../../../../lib/backends/zookeeper/locks/stored-lock.js';

it('an entry that holds what others have written says what to do, without its content', () => {
  const entry = { path: '/locks/0001/key@holder@0000000001', key: 'key', holder: 'holder', sequence: 1 };
  const stat = { czxid: 1n, version: 0, owner: 0n, childCount: 0 };
  for (const text of ['', 'secret', '"secret"', 'null', '{"isHeld":'])
    expect(() => storedLockOf(entry, { data: Buffer.from(text), stat })).toThrow(
      '"/locks/0001/key@holder@0000000001" is no node of this library: delete it from ZooKeeper',
    );
});
