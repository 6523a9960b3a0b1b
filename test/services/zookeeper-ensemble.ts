import { setTimeout as sleep } from 'node:timers/promises';
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
  /** If the leader commits nothing although requests wait, makes others elect one. Returns whether that was so. */
  endStandstill(): Promise<boolean>;
  close(): Promise<void>;
}

const SIZE = 3;
/** A majority that serves needs some ms for a request, and on a busy machine some hundred. */
const STANDSTILL_MS = 3_000;
const POLL_MS = 100;

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
    endStandstill: async () => {
      const leader = await findLeader(members);
      if (!(await standsStill(leader.service.url))) return false;
      await leader.kill();
      await leader.startAgain();
      return true;
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

/** Whether the server at this address leads, requests wait, and none is committed. */
export async function standsStill(url: string): Promise<boolean> {
  const before = await statusOf(url);
  const endsAtMs = performance.now() + STANDSTILL_MS;
  while (performance.now() < endsAtMs) {
    const { mode, zxid, outstanding } = await statusOf(url);
    if (mode !== 'leader' || outstanding === '0' || zxid !== before.zxid) return false;
    await sleep(POLL_MS);
  }
  return true;
}

async function modeOf({ service }: RestartableServer): Promise<string | undefined> {
  return (await statusOf(service.url)).mode;
}

interface Status {
  /** `leader` or `follower`; `undefined` if it does not serve. */
  readonly mode: string | undefined;
  /** Of the newest transaction that it knows to be committed. */
  readonly zxid: string | undefined;
  /** How many requests have no reply yet. */
  readonly outstanding: string | undefined;
}

async function statusOf(url: string): Promise<Status> {
  const answer = await fourLetters(url, 'srvr').catch(() => '');
  const read = (name: string) => new RegExp(`^${name}: (\\w+)$`, 'm').exec(answer)?.[1];
  return { mode: read('Mode'), zxid: read('Zxid'), outstanding: read('Outstanding') };
}

function isRunning({ service }: RestartableServer): boolean {
  try {
    return process.kill(service.pid, 0);
  } catch {
    return false;
  }
}
