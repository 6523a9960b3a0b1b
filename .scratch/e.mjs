import { NestFactory } from '@nestjs/core';
import { DistributedLockModule } from '../dist/lib/index.js';
import { etcdBackend } from '../dist/lib/backends/etcd/index.js';
import { zookeeperBackend } from '../dist/lib/backends/zookeeper/index.js';
for (const backend of [etcdBackend({ hosts: '127.0.0.1:7' }), zookeeperBackend({ servers: '127.0.0.1:7' }), etcdBackend({ hosts: 'nowhere.invalid:7' }), zookeeperBackend({ servers: 'nowhere.invalid:7' })]) {
  const app = await NestFactory.createApplicationContext(DistributedLockModule.forRoot({ backend }), { logger: ['warn', 'error'] });
  await app.close();
}
