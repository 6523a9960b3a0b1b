import { setTimeout as sleep } from 'node:timers/promises';
import { CROWDED, INTERRUPTED, ORDERS_BEHIND, ORDERS_FOR_EACH } from './catalogue.js';
import { type Answer, answered, place, placeMany } from './customers.js';
import type { Replica } from './replica.js';
import type { Three } from './replicas.js';

export interface Kill {
  readonly replica: string;
  /** By the wall clock. */
  readonly atMs: number;
  /** How long it took until somebody else had bought under the lock that was held, payment and all. */
  readonly freedAfterMs: number;
}

export interface Sale {
  readonly answers: readonly Answer[];
  readonly kill: Kill;
}

/** Nobody waits for it. */
const SLOW_PAYMENT_MS = 60_000;
const HOLD_LIMIT_MS = 10_000;

/** Everybody orders at once, at all replicas. */
export function sellInPeace(replicas: Three): Promise<Answer[]> {
  console.log('Everybody orders at once, at all replicas.');
  return Promise.all(rush(replicas));
}

/** The same, and in the middle of it a replica is killed while it holds a lock. */
export async function sellThroughKill(replicas: Three): Promise<Sale> {
  const [first, second, victim] = replicas;
  const slow = place({ product: INTERRUPTED, replica: victim, paymentMs: SLOW_PAYMENT_MS });
  await untilHeld(`product:${INTERRUPTED}`, { holder: victim, witness: first });
  console.log(
    `Somebody at ${victim.name} is slow to pay for a ${INTERRUPTED}, so ${victim.name} holds its lock.`,
  );

  const inLine = placeMany(INTERRUPTED, ORDERS_BEHIND, [first, second]);
  const orders = rush(replicas);
  console.log(
    `Everybody orders at once, at all replicas; ${ORDERS_BEHIND} stand in line for the ${INTERRUPTED}.`,
  );
  await answered(orders, orders.length / 3);

  const atMs = Date.now();
  const killedAtMs = performance.now();
  await victim.kill();
  console.log(`${victim.name} is killed (SIGKILL) while it holds the lock.`);

  const answers = await Promise.all([slow, ...inLine, ...orders]);
  console.log('The sale is over.');
  const boughtAtMs = answers.filter(isBoughtAfterAll).map((answer) => answer.atMs);
  return {
    answers,
    kill: { replica: victim.name, atMs, freedAfterMs: Math.min(...boughtAtMs) - killedAtMs },
  };
}

const rush = (replicas: Three) => CROWDED.flatMap((product) => placeMany(product, ORDERS_FOR_EACH, replicas));

const isBoughtAfterAll = ({ product, outcome }: Answer) => product === INTERRUPTED && outcome === 'accepted';

async function untilHeld(
  key: string,
  { holder, witness }: { holder: Replica; witness: Replica },
): Promise<void> {
  const deadline = performance.now() + HOLD_LIMIT_MS;
  while ((await witness.holderOf(key)) !== holder.name) {
    if (performance.now() > deadline) {
      throw new Error(
        `Expected ${holder.name} to hold the lock ${key} within ${HOLD_LIMIT_MS} ms, but it does not.`,
      );
    }
    await sleep(20);
  }
}
