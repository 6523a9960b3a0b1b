import { expect, it } from 'vitest';
import { decodeJson } from '../../../../lib/backends/etcd/stored-json.js';
import type { KeyValue } from '../../../../lib/backends/etcd/rpc/messages.js';

it.each(['password=xyzzy', '"xyzzy"', 'null'])('the value %s of a stranger is in no error', (value) => {
  const entry = { key: Buffer.from('lock/key'), value: Buffer.from(value) } as KeyValue;
  expect(() => decodeJson(entry)).toThrow('"lock/key" is no key of this library: delete it from etcd');
});
