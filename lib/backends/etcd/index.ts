export { EtcdBackend, etcdBackend } from './etcd-backend.js';
export type { EtcdAuth, EtcdBackendOptions } from './etcd-options.js';
