export type { ZookeeperAcl } from './acl-options.js';
export { ZookeeperBackend, zookeeperBackend } from './zookeeper-backend.js';
export type { ZookeeperAuth, ZookeeperBackendOptions } from './zookeeper-options.js';
