import { Replica } from './replica.js';

export type ThreeReplicas = readonly [Replica, Replica, Replica];

const NAMES = ['replica-1', 'replica-2', 'replica-3'];

/** Runs three replicas as long as the work goes on. However it ends, none of them is left. */
export async function withReplicas<T>(
  environment: Readonly<Record<string, string>>,
  work: (replicas: ThreeReplicas) => Promise<T>,
): Promise<T> {
  const starts = await Promise.allSettled(NAMES.map((name) => Replica.start(name, environment)));
  const replicas = starts.filter((start) => start.status === 'fulfilled').map(({ value }) => value);
  try {
    if (replicas.length < NAMES.length) throw new Error('A replica did not start; see above.');
    return await work(replicas as unknown as ThreeReplicas);
  } finally {
    await Promise.all(replicas.map((replica) => replica.stop()));
  }
}
