import type { Leader, Replica } from './replica.js';
import type { ThreeReplicas } from './replicas.js';
import { until } from './until.js';

/** The replica that leads, and its term. */
export async function untilLed(replicas: ThreeReplicas): Promise<Leader & { readonly replica: Replica }> {
  return until('one of the replicas to lead', async () => {
    const leader = await replicas[0].leader();
    const replica = replicas.find(({ name }) => name === leader?.instance);
    return leader && replica && { ...leader, replica };
  });
}

/** Without this, the time that the next leader takes would be measured from nothing. */
export async function checkStillLeads({ instance, term }: Leader, observer: Replica): Promise<void> {
  if ((await observer.leader())?.term === term) return;
  throw new Error(
    `Expected ${instance} to lead until it is killed, but its term is over: is the machine too busy for so short a lease?`,
  );
}

/** Waits until another leads and has dispatched its first job; answers when, by the clock of `performance`. */
export async function untilTakenOver(former: Leader, observer: Replica): Promise<number> {
  const { replica, term } = await until('another replica to lead and dispatch', async () => {
    const dispatches = await observer.latestDispatches();
    return dispatches?.findLast((dispatch) => BigInt(dispatch.term) > former.term);
  });
  console.log(`${replica} leads now, in term ${term}, and has dispatched its first job.`);
  return performance.now();
}

/** Waits until all that is due by then is dispatched. */
export async function untilDispatched(lastTickMs: number, observer: Replica): Promise<void> {
  await until('all that is due to be dispatched', async () => {
    const crontab = await observer.crontab();
    return crontab?.every(({ nextTick }) => Date.parse(nextTick) > lastTickMs) || undefined;
  });
}
