import { setTimeout as sleep } from 'node:timers/promises';
import type { Seat } from '../crew.js';
import type { Proxy } from '../proxy.js';
import type { Random } from '../../random.js';
import type { Nemesis } from './nemesis.js';

/** From what hardly anybody notices to more than any lease. */
const [SHORTEST_MS, LONGEST_MS] = [100, 2_500];

/** Nobody else has spoilt its network. */
const isFair = ({ networks }: Seat) => networks.every((network) => network.isFair);

/** A nemesis of the network between one process and the servers. */
const onNetwork = (name: string, spoil: (network: Proxy, random: Random) => void): Nemesis => ({
  name,
  target: 'network',
  isInsideGuarantee: true,
  fits: ({ servers }) => servers.length > 0,
  async strike({ crew }, random) {
    const { networks } = random.pick(crew.seats.filter(isFair));
    for (const network of networks) spoil(network, random);
    await sleep(random.between(SHORTEST_MS, LONGEST_MS));
    for (const network of networks) network.heal();
  },
});

/** Nothing arrives until the network is healed; then everything does, as TCP sends again. */
export const partitioned = onNetwork('partition', (network) => network.turn({ up: 'hold', down: 'hold' }));

export const requestsHeld = onNetwork('one way: requests held', (network) => network.turn({ up: 'hold' }));

export const repliesHeld = onNetwork('one way: replies held', (network) => network.turn({ down: 'hold' }));

/** What was sent is gone, and the connections with it. */
export const requestsDropped = onNetwork('requests dropped', (network) => network.turn({ up: 'drop' }));

export const repliesDropped = onNetwork('replies dropped', (network) => network.turn({ down: 'drop' }));

/** The server thinks that its clients have gone; they hear nothing, also on new connections. */
export const halfOpen = onNetwork('half-open', (network) => {
  network.turn({ up: 'drop', down: 'drop' });
  network.halfOpen();
});

export const delayed = onNetwork('delayed', (network, random) => {
  const delayMs = random.between(50, 400);
  network.turn({ delayMs: () => delayMs * random.between(0.5, 1.5) });
});

export const refused = onNetwork('connections reset and refused', (network) => {
  network.turn({ refuses: true });
  network.resetAll();
});

/** The request takes effect, and its sender cannot know. */
export const cutBeforeReply = onNetwork('cut before the reply', (network) => network.turn({ cuts: 'reply' }));

export const cutInRequest = onNetwork('cut in the request', (network) => network.turn({ cuts: 'request' }));
