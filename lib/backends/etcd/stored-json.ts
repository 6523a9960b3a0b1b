import { parseObject } from '../../core/json.js';
import { EtcdError } from './rpc/etcd-errors.js';
import type { KeyValue } from './rpc/messages.js';

/** @throws EtcdError without the value, which may be a secret of others */
export function decodeJson({ key, value }: KeyValue): object {
  const decoded = parseObject(value.toString());
  if (decoded) return decoded;
  throw new EtcdError(`${JSON.stringify(key.toString())} is no key of this library: delete it from etcd`);
}
