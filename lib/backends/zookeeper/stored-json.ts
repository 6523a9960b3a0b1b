import { parseObject } from '../../core/json.js';
import { ZookeeperError } from './wire/zookeeper-errors.js';

/** @throws ZookeeperError without the data, which may be a secret of others */
export function decodeJson(data: Buffer, path: string): object {
  const decoded = parseObject(data.toString());
  if (decoded) return decoded;
  throw new ZookeeperError(`"${path}" is no node of this library: delete it from ZooKeeper`);
}
