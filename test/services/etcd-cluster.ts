import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { RestartableServer } from '../faults/injection/restartable-server.js';
import { until } from '../support/until.js';
import { type EtcdMember, startEtcdMember } from './etcd.js';
import { freePort } from './free-port.js';

/** A private cluster of three members, each of which can be killed, frozen and started again. */
export interface EtcdCluster {
  readonly members: readonly RestartableServer[];
  readonly hosts: readonly string[];
  /** The member that leads now. */
  leader(): Promise<RestartableServer>;
  /** Lets frozen members go on, and starts those that were killed. One without its disk would have to be replaced. */
  heal(): Promise<void>;
  close(): Promise<void>;
}

const NAMES = ['one', 'two', 'three'];

export async function startEtcdCluster(): Promise<EtcdCluster> {
  const peers = await Promise.all(NAMES.map(async () => `http://127.0.0.1:${await freePort()}`));
  const cluster = NAMES.map((name, index) => `${name}=${peers[index]}`).join(',');
  const members = await Promise.all(
    NAMES.map((name, index) => {
      const member: EtcdMember = { name, peer: peers[index] ?? '', cluster };
      return RestartableServer.start((options) => startEtcdMember(member, options), {});
    }),
  );
  const found = {
    members,
    hosts: members.map(({ service }) => service.url),
    leader: () => findLeader(members),
    heal: async () => {
      for (const member of members) if (isRunning(member)) member.thaw();
      const gone = members.filter((member) => !isRunning(member) && hasData(member));
      await Promise.all(gone.map((member) => member.startAgain()));
      await findLeader(members);
    },
    close: async () => {
      for (const member of members) if (isRunning(member)) member.thaw();
      await Promise.all(members.map((member) => member.close()));
    },
  };
  await found.leader();
  return found;
}

/** Waits until a member says that it leads. */
async function findLeader(members: readonly RestartableServer[]): Promise<RestartableServer> {
  let leader: RestartableServer | undefined;
  await until(async () => {
    const answers = await Promise.all(
      members.map(async (member) => ((await isLeader(member)) ? member : undefined)),
    );
    leader = answers.find((member) => member !== undefined);
    return leader !== undefined;
  });
  if (!leader) throw new Error('Expected a leader.');
  return leader;
}

async function isLeader({ service }: RestartableServer): Promise<boolean> {
  try {
    const response = await fetch(`${service.url}/metrics`, { signal: AbortSignal.timeout(1_000) });
    return /^etcd_server_is_leader 1$/m.test(await response.text());
  } catch {
    return false;
  }
}

const hasData = ({ service }: RestartableServer) => existsSync(join(service.dataDir, 'data'));

function isRunning({ service }: RestartableServer): boolean {
  try {
    return process.kill(service.pid, 0);
  } catch {
    return false;
  }
}
