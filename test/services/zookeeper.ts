import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { ensurePrograms, ensureProgram } from './install.js';
import { freePort } from './free-port.js';
import type { Service, ServiceOptions } from './service.js';
import { startServer } from './start-server.js';

const MAIN = 'org.apache.zookeeper.server.quorum.QuorumPeerMain';
/** It names the other files that Java needs. */
const JAR = '/usr/share/java/zookeeper.jar';
/** What it does not name although TLS needs it. */
const NETTY_JARS = '/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar';
/** A small machine of Java that starts quickly and does not wait for the disk. */
const JAVA_ARGS = [
  ...['-Xmx128m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1'],
  ...['-Dzookeeper.forceSync=no', '-Dzookeeper.preAllocSize=1024', '-Dzookeeper.admin.enableServer=false'],
  // Members that look for a leader ask each other again soon.
  '-Dzookeeper.fastleader.minNotificationInterval=20',
];
export const TICK_TIME_MS = 200;

/** What one server of an ensemble knows of the others. */
export interface ZookeeperMember {
  /** 1, 2, 3, … */
  readonly id: number;
  /** The ports of all members, for the transactions and for elections. */
  readonly peers: readonly (readonly [number, number])[];
}

export interface ZookeeperSettings {
  readonly member?: ZookeeperMember;
  /** Further lines of `zoo.cfg`. */
  readonly config?: readonly string[];
  /** Further arguments of Java, before the class. */
  readonly javaArgs?: readonly string[];
}

/** Starts a private ZooKeeper. It is ready when it serves; a member of an ensemble when it runs. */
export async function startZookeeper(
  options: ServiceOptions = {},
  { member, config = [], javaArgs = [] }: ZookeeperSettings = {},
): Promise<Service> {
  await ensurePrograms(['java', JAR]);
  const port = options.port ?? (await freePort());
  return startServer(
    {
      name: 'zookeeper',
      file: await ensureProgram('java'),
      // Java would end with a code of its own. What was acknowledged is in the files.
      stopSignal: 'SIGKILL',
      url: (at) => `127.0.0.1:${at}`,
      prepare: async ({ dataDir }) => {
        await mkdir(join(dataDir, 'data'), { recursive: true });
        if (member) await writeFile(join(dataDir, 'data', 'myid'), `${member.id}\n`);
        await writeFile(join(dataDir, 'zoo.cfg'), zooCfg({ dataDir, port, member, config }));
      },
      args: ({ dataDir }) => [
        ...JAVA_ARGS,
        ...javaArgs,
        ...['-cp', `${JAR}:${NETTY_JARS}`, MAIN, join(dataDir, 'zoo.cfg')],
      ],
      ask: (url) => (config.some(isSecure) ? connectTo(url) : ask(url, member !== undefined)),
    },
    { ...options, port },
  );
}

interface ZooCfg extends Required<Pick<ZookeeperSettings, 'config'>> {
  readonly dataDir: string;
  readonly port: number;
  readonly member: ZookeeperMember | undefined;
}

const zooCfg = ({ dataDir, port, member, config }: ZooCfg): string =>
  [
    ...[`dataDir=${join(dataDir, 'data')}`, `tickTime=${TICK_TIME_MS}`, 'initLimit=50', 'syncLimit=10'],
    // Specs ask for long leases.
    ...['maxSessionTimeout=1000000000', 'maxClientCnxns=0', '4lw.commands.whitelist=*'],
    ...(config.some(isSecure) ? [] : [`clientPort=${port}`, 'clientPortAddress=127.0.0.1']),
    ...(member?.peers ?? []).map(
      ([peer, election], index) => `server.${index + 1}=127.0.0.1:${peer}:${election}`,
    ),
    ...config,
    '',
  ].join('\n');

const isSecure = (line: string) => line.startsWith('secureClientPort=');

/** A server with TLS may want a certificate for more. */
async function connectTo(url: string): Promise<void> {
  const socket = connect(Number(url.split(':').at(-1)), '127.0.0.1');
  await once(socket, 'connect').finally(() => socket.destroy());
}

async function ask(url: string, isMember: boolean): Promise<void> {
  const answer = await fourLetters(url, isMember ? 'ruok' : 'srvr');
  if (!/imok|Mode:/.test(answer)) throw new Error(`got ${answer}`);
}

/** The answer of a server to one of the commands of four letters. */
export async function fourLetters(url: string, command: 'ruok' | 'srvr' | 'mntr' | 'cons'): Promise<string> {
  const socket = connect(Number(url.split(':').at(-1)), '127.0.0.1');
  socket.setTimeout(2_000, () => socket.destroy(new Error('no answer')));
  const parts: Buffer[] = [];
  socket.on('data', (part: Buffer) => parts.push(part));
  try {
    await once(socket, 'connect');
    socket.write(command);
    await once(socket, 'close');
  } finally {
    socket.destroy();
  }
  return Buffer.concat(parts).toString();
}
