import { POPULAR_PRODUCTS } from './catalogue.js';
import type { Outcome, Replica } from './replica.js';

/** What became of an order. */
export interface OrderResponse {
  readonly product: string;
  readonly replica: string;
  readonly outcome: Outcome;
  /** When, by the clock of `performance`. */
  readonly atMs: number;
}

export interface OrderRequest {
  readonly product: string;
  readonly replica: Replica;
  /** @default a few ms */
  readonly paymentMs?: number;
}

export async function placeOrder({ product, replica, paymentMs }: OrderRequest): Promise<OrderResponse> {
  const outcome = await replica.order(product, paymentMs);
  return { product, replica: replica.name, outcome, atMs: performance.now() };
}

/** So many orders for a product at once, dealt out to the replicas in turn. */
export function placeOrders(
  product: string,
  count: number,
  replicas: readonly Replica[],
): readonly Promise<OrderResponse>[] {
  const inTurn = Array.from({ length: Math.ceil(count / replicas.length) }, () => replicas).flat();
  return inTurn.slice(0, count).map((replica) => placeOrder({ product, replica }));
}

const SLOW_PAYMENT_MS = 3_000;

/** Customers of each product at each replica who pay slowly, so that locks and their waiters can be seen, until all is sold. */
export async function shopSlowly(replicas: readonly Replica[]): Promise<void> {
  const shop = async (product: string, replica: Replica) => {
    let outcome: Outcome;
    do ({ outcome } = await placeOrder({ product, replica, paymentMs: SLOW_PAYMENT_MS }));
    while (outcome === 'accepted');
  };
  await Promise.all(POPULAR_PRODUCTS.flatMap((product) => replicas.map((replica) => shop(product, replica))));
}

/** Resolves when so many of the orders are answered, whichever they are. */
export async function waitForResponses(
  orders: readonly Promise<OrderResponse>[],
  count: number,
): Promise<void> {
  await new Promise<void>((resolve) => {
    let left = count;
    const countDown = () => {
      left -= 1;
      if (left <= 0) resolve();
    };
    for (const order of orders) void order.then(countDown);
  });
}
