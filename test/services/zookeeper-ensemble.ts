import { RestartableServer } from '../faults/injection/restartable-server.js';
import { until } from '../support/until.js';
import { freePort } from './free-port.js';
import { fourLetters, startZookeeper } from './zookeeper.js';

/** A private ensemble, each of whose servers can be killed, frozen and started again. */
export interface ZookeeperEnsemble {
  readonly members: readonly RestartableServer[];
  readonly servers: readonly string[];
  /** The member that leads now. */
  leader(): Promise<RestartableServer>;
  /** Lets frozen members go on, starts those that were killed, and waits until all serve. */
  heal(): Promise<void>;
  close(): Promise<void>;
}

const SIZE = 3;

interface EnsembleOptions {
  /** @default 3 */
  readonly size?: number;
  /** Further lines of `zoo.cfg`. */
  readonly config?: readonly string[];
  /** How the last member reaches the others for transactions: the port that leads to this one. It does not lead itself. */
  readonly reachesPeersThrough?: (port: number) => Promise<number>;
}

export async function startZookeeperEnsemble({
  size = SIZE,
  config = [],
  reachesPeersThrough,
}: EnsembleOptions = {}): Promise<ZookeeperEnsemble> {
  const ids = Array.from({ length: size }, (_, index) => index + 1);
  const peers = await Promise.all(ids.map(async () => [await freePort(), await freePort()] as const));
  const start = async (id: number) => {
    const isLast = id === size && reachesPeersThrough !== undefined;
    const seen = await Promise.all(
      peers.map(async ([port, election], index): Promise<[number, number]> => [
        isLast && index + 1 !== id ? await reachesPeersThrough(port) : port,
        election,
      ]),
    );
    const member = { id, peers: seen };
    return RestartableServer.start((options) => startZookeeper(options, { member, config }), {});
  };
  const members = await Promise.all(ids.slice(0, -1).map(start));
  // Those that have elected a leader keep it.
  if (reachesPeersThrough) await findLeader(members);
  members.push(await start(size));
  const ensemble = {
    members,
    servers: members.map(({ service }) => service.url),
    leader: () => findLeader(members),
    heal: async () => {
      for (const member of members) if (isRunning(member)) member.thaw();
      await Promise.all(members.filter((one) => !isRunning(one)).map((one) => one.startAgain()));
      await until(async () => (await Promise.all(members.map(modeOf))).every((mode) => mode !== undefined));
    },
    close: async () => {
      for (const member of members) if (isRunning(member)) member.thaw();
      await Promise.all(members.map((member) => member.close()));
    },
  };
  await ensemble.heal();
  return ensemble;
}

/** Waits until a member that serves says that it leads. */
async function findLeader(members: readonly RestartableServer[]): Promise<RestartableServer> {
  let leader: RestartableServer | undefined;
  await until(async () => {
    const modes = await Promise.all(members.map(modeOf));
    leader = members[modes.indexOf('leader')];
    return leader !== undefined;
  });
  if (!leader) throw new Error('Expected a leader.');
  return leader;
}

/** `leader` or `follower`; `undefined` if it does not serve. */
async function modeOf({ service }: RestartableServer): Promise<string | undefined> {
  const answer = await fourLetters(service.url, 'srvr').catch(() => '');
  return /^Mode: (\w+)$/m.exec(answer)?.[1];
}

function isRunning({ service }: RestartableServer): boolean {
  try {
    return process.kill(service.pid, 0);
  } catch {
    return false;
  }
}
