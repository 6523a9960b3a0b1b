import { POPULAR_PRODUCTS, INTERRUPTED, ORDERS_BEHIND, ORDERS_FOR_EACH } from './catalogue.js';
import { type OrderResponse, waitForResponses, placeOrder, placeOrders } from './customers.js';
import { checkStillLeads, untilLed, untilTakenOver } from './leader.js';
import type { Replica } from './replica.js';
import type { ThreeReplicas } from './replicas.js';
import { until } from './until.js';

export interface Kill {
  readonly replica: string;
  /** By the wall clock. */
  readonly atMs: number;
  /** One of those that go on. */
  readonly survivor: Replica;
  /** How long it took until somebody else had bought under the lock that was held, payment and all. */
  readonly releasedAfterMs: number;
  /** How long it took until another replica led and had dispatched its first job. */
  readonly ledAfterMs: number;
}

export interface Sale {
  readonly responses: readonly OrderResponse[];
  readonly kill: Kill;
}

/** Nobody waits for it. */
const SLOW_PAYMENT_MS = 60_000;

/** Everybody orders at once, at all replicas. */
export function sellInPeace(replicas: ThreeReplicas): Promise<OrderResponse[]> {
  console.log('Everybody orders at once, at all replicas.');
  return Promise.all(rush(replicas));
}

/** The same, and in the middle of it a replica is killed while it holds a lock and leads the dispatch. */
export async function sellThroughKill(replicas: ThreeReplicas): Promise<Sale> {
  const { replica: victim, ...leader } = await untilLed(replicas);
  const others = replicas.filter((replica) => replica !== victim) as [Replica, Replica];
  console.log(`${victim.name} leads the dispatch of the crontab, in term ${leader.term}.`);
  const slow = placeOrder({ product: INTERRUPTED, replica: victim, paymentMs: SLOW_PAYMENT_MS });
  await untilHeld(`product:${INTERRUPTED}`, victim);
  console.log(
    `Somebody at ${victim.name} is slow to pay for a ${INTERRUPTED}, so ${victim.name} holds its lock.`,
  );

  const queuedOrders = placeOrders(INTERRUPTED, ORDERS_BEHIND, others);
  const orders = rush(replicas);
  console.log(`Everybody orders at once, at all replicas; ${ORDERS_BEHIND} wait for the ${INTERRUPTED}.`);
  await waitForResponses(orders, orders.length / 3);

  await checkStillLeads(leader, others[0]);
  const atMs = Date.now();
  const killedAtMs = performance.now();
  await victim.kill();
  console.log(`${victim.name} is killed (SIGKILL) while it leads and holds the lock.`);

  const [responses, ledAtMs] = await Promise.all([
    Promise.all([slow, ...queuedOrders, ...orders]),
    untilTakenOver(leader, others[0]),
  ]);
  console.log('The sale is over.');
  const boughtAtMs = responses.filter(isBoughtAfterAll).map((response) => response.atMs);
  return {
    responses,
    kill: {
      replica: victim.name,
      survivor: others[0],
      atMs,
      releasedAfterMs: Math.min(...boughtAtMs) - killedAtMs,
      ledAfterMs: ledAtMs - killedAtMs,
    },
  };
}

const rush = (replicas: ThreeReplicas) =>
  POPULAR_PRODUCTS.flatMap((product) => placeOrders(product, ORDERS_FOR_EACH, replicas));

const isBoughtAfterAll = ({ product, outcome }: OrderResponse) =>
  product === INTERRUPTED && outcome === 'accepted';

const untilHeld = (key: string, holder: Replica) =>
  until(`${holder.name} to hold the lock ${key}`, async () =>
    (await holder.holderOf(key)) === holder.name ? holder : undefined,
  );
