import { once } from 'node:events';
import { connect } from 'node:net';
import { join } from 'node:path';
import { execa } from 'execa';
import { ensureProgram } from './install.js';
import { freePort } from './free-port.js';
import type { Service, ServiceOptions } from './service.js';
import { startServer } from './start-server.js';

/** Elections are quick, so a member that is gone is replaced soon. The shortest lease stays at a second. */
const QUICK_ELECTIONS = ['--heartbeat-interval=50', '--election-timeout=500'];

/** Starts a private etcd of one member. It keeps its data in its folder, and waits for the disk: etcd 3.4 cannot do without. */
export async function startEtcd(options: ServiceOptions = {}, scheme?: 'https'): Promise<Service> {
  const peer = `http://127.0.0.1:${await freePort()}`;
  return startEtcdMember({ name: 'etcd', peer, cluster: `etcd=${peer}`, scheme }, options);
}

export interface EtcdMember {
  readonly name: string;
  /** Where the other members reach it. */
  readonly peer: string;
  /** All members, as `--initial-cluster` names them. */
  readonly cluster: string;
  /** @default 'http' */
  readonly scheme?: 'https' | undefined;
}

export async function startEtcdMember(member: EtcdMember, options: ServiceOptions = {}): Promise<Service> {
  const { name, peer, cluster, scheme = 'http' } = member;
  return startServer(
    {
      name,
      file: await ensureProgram('etcd'),
      stopSignal: 'SIGTERM',
      url: (port) => `${scheme}://127.0.0.1:${port}`,
      prepare: async () => undefined,
      args: ({ dataDir, port }) => [
        ...['--name', name, '--data-dir', join(dataDir, 'data')],
        ...['--listen-client-urls', `${scheme}://127.0.0.1:${port}`],
        ...['--advertise-client-urls', `${scheme}://127.0.0.1:${port}`],
        ...['--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer],
        ...['--initial-cluster', cluster, '--initial-cluster-token', cluster],
        ...QUICK_ELECTIONS,
        ...['--logger', 'zap', '--log-level', 'error'],
      ],
      ask,
    },
    options,
  );
}

/** A connection is enough: the other members of a cluster may not have started, and a client may need a certificate. */
async function ask(url: string): Promise<void> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  await once(socket, 'connect').finally(() => socket.destroy());
}

/** A line of `etcdctl`'s job that has no place in the backend: users, roles, compaction. */
export const etcdctl = async (...args: string[]) =>
  (await execa('etcdctl', args, { env: { ETCDCTL_API: '3' } })).stdout;
