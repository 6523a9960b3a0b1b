import { setTimeout as sleep } from 'node:timers/promises';
import type { WorkerSlot } from '../workers/worker-pool.js';
import type { FaultProxy } from '../../injection/fault-proxy.js';
import type { Random } from '../../../support/random.js';
import type { Nemesis } from './nemesis.js';

/** From what hardly anybody notices to more than any lease. */
const [SHORTEST_MS, LONGEST_MS] = [100, 2_500];

/** Nobody else has spoilt its network. */
const isHealthy = ({ networks }: WorkerSlot) => networks.every((network) => network.isHealthy);

/** A nemesis of the network between one process and the servers. */
const networkNemesis = (name: string, disturb: (network: FaultProxy, random: Random) => void): Nemesis => ({
  name,
  target: 'network',
  isInsideGuarantee: true,
  appliesTo: ({ servers }) => servers.length > 0,
  async inject({ workers }, random) {
    const { networks } = random.pick(workers.slots.filter(isHealthy));
    for (const network of networks) disturb(network, random);
    await sleep(random.between(SHORTEST_MS, LONGEST_MS));
    for (const network of networks) network.heal();
  },
});

/** Nothing arrives until the network is healed; then everything does, as TCP sends again. */
export const partitioned = networkNemesis('partition', (network) =>
  network.setConditions({ up: 'hold', down: 'hold' }),
);

export const requestsHeld = networkNemesis('one way: requests held', (network) =>
  network.setConditions({ up: 'hold' }),
);

export const repliesHeld = networkNemesis('one way: replies held', (network) =>
  network.setConditions({ down: 'hold' }),
);

/** What was sent is gone, and the connections with it. */
export const requestsDropped = networkNemesis('requests dropped', (network) =>
  network.setConditions({ up: 'drop' }),
);

export const repliesDropped = networkNemesis('replies dropped', (network) =>
  network.setConditions({ down: 'drop' }),
);

/** The server thinks that its clients have gone; they hear nothing, also on new connections. */
export const halfOpen = networkNemesis('half-open', (network) => {
  network.setConditions({ up: 'drop', down: 'drop' });
  network.halfOpen();
});

export const delayed = networkNemesis('delayed', (network, random) => {
  const delayMs = random.between(50, 400);
  network.setConditions({ delayMs: () => delayMs * random.between(0.5, 1.5) });
});

export const refused = networkNemesis('connections reset and refused', (network) => {
  network.setConditions({ refuses: true });
  network.resetAll();
});

/** The request takes effect, and its sender cannot know. */
export const cutBeforeReply = networkNemesis('cut before the reply', (network) =>
  network.setConditions({ cuts: 'reply' }),
);

export const cutInRequest = networkNemesis('cut in the request', (network) =>
  network.setConditions({ cuts: 'request' }),
);
