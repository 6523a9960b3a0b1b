import { etcdBackend } from '../../lib/backends/etcd/index.js';
import { serviceUrl } from '../support/environment.js';
import { forgetEtcdKey } from '../support/etcd.js';
import { describeLaws } from './law-suite.js';

const url = serviceUrl('TEST_ETCD_URL');

describeLaws(
  'etcd',
  { open: () => etcdBackend({ hosts: url }), forget: (key) => forgetEtcdKey(url, key) },
  { lanes: 8 },
);
