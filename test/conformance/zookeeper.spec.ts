import { zookeeperBackend } from '../../lib/backends/zookeeper/index.js';
import { TICK_TIME_MS } from '../services/zookeeper.js';
import { serviceUrl } from '../support/environment.js';
import { SESSION_TIMEOUT_MS, forgetZookeeperKey } from '../support/zookeeper.js';
import { describeLaws } from './law-suite.js';

const servers = serviceUrl('TEST_ZOOKEEPER_URL');
const options = { servers, sessionTimeoutMs: SESSION_TIMEOUT_MS, tickTimeMs: TICK_TIME_MS };

describeLaws(
  'zookeeper',
  { open: () => zookeeperBackend(options), forget: (key) => forgetZookeeperKey(servers, key) },
  { lanes: 8 },
);
