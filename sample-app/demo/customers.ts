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
