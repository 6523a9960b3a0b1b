import type { LockOrderEdge } from './lock-order-graph.js';

/** What is wrong with the order of two locks, and what to do. With stacks, it also says where. */
export function describeInversion({ opposite = [], ...edge }: LockOrderEdge): string {
  const { from, to, heldKey, key } = edge;
  const keys = `withLock([${JSON.stringify(heldKey)}, ${JSON.stringify(key)}], work)`;
  if (opposite.length === 0)
    return (
      `A lock ${JSON.stringify(key)} is acquired while ${JSON.stringify(heldKey)} of the same ` +
      `template is held. If another call acquires two of them in the opposite order, each waits for the other until waitMs is over. Acquire them together: ${keys}. If all calls ` +
      `acquire them in one order, for example sorted, give the outer and the inner lock a label of their own.`
    );
  const others = opposite.map((each) => `"${each.from}" before "${each.to}"`).join(' and ');
  return (
    `Locks are acquired in opposite orders: here "${from}" before "${to}", elsewhere ${others}. Such calls can wait for ` +
    `each other until waitMs is over. Acquire these locks in the same order everywhere, or together: ${keys}.`
  );
}

/** As {@link describeInversion}, with the stacks of all its calls. */
export const describeInversionWithStacks = (edge: LockOrderEdge): string =>
  [describeInversion(edge), ...[edge, ...(edge.opposite ?? [])].map(describeCall)].join('\n');

const describeCall = (edge: LockOrderEdge) => `${describeKeys(edge)}:\n${edge.stack}`;

/** A key may have line breaks. */
const describeKeys = ({ heldKey, key }: LockOrderEdge) =>
  `A call that held ${JSON.stringify(heldKey)} acquired ${JSON.stringify(key)}`;

/** The calls that acquire the locks in the opposite order, each as the cause of the one before it. */
export const oppositeCalls = ({ opposite = [] }: LockOrderEdge): Error | undefined =>
  opposite.reduceRight<Error | undefined>((cause, edge) => {
    const call = new Error(`${describeKeys(edge)}.`, cause && { cause });
    call.stack = `${call.name}: ${call.message}\n${edge.stack}`;
    return call;
  }, undefined);
