import type { Hold } from './contention.js';

const inOrder = (holds: readonly Hold[]) => [...holds].sort((one, two) => one.fromMs - two.fromMs);

/** The permits that were held twice at one time. */
export function permitOverlaps(holds: readonly Hold[]): readonly Hold[] {
  const endsMs = new Map<number, number>();
  return inOrder(holds).filter(({ permit, fromMs, toMs }) => {
    const endMs = endsMs.get(permit) ?? -Infinity;
    endsMs.set(permit, Math.max(endMs, toMs));
    return fromMs <= endMs;
  });
}

/** The holders of a lock with a mode that were beside a writer, or writers that were beside anyone. */
export function writerOverlaps(holds: readonly Hold[]): readonly Hold[] {
  let [writtenUntilMs, heldUntilMs] = [-Infinity, -Infinity];
  return inOrder(holds).filter(({ mode, fromMs, toMs }) => {
    const isBeside = fromMs <= (mode === 'write' ? heldUntilMs : writtenUntilMs);
    if (mode === 'write') writtenUntilMs = Math.max(writtenUntilMs, toMs);
    heldUntilMs = Math.max(heldUntilMs, toMs);
    return isBeside;
  });
}

export const longestWaitMs = (holds: readonly Hold[]): number =>
  holds.reduce((longest, { askedAtMs, fromMs }) => Math.max(longest, fromMs - askedAtMs), 0);

/** The longest time in which a permit had no holder that lived on. */
export function longestGapMs(holds: readonly Hold[], permits: number): number {
  const gaps = Array.from({ length: permits }, (_, permit) => {
    const ofPermit = inOrder(holds.filter((hold) => hold.permit === permit));
    return ofPermit
      .slice(1)
      .reduce((longest, { fromMs }, index) => Math.max(longest, fromMs - ofPermit[index]!.toMs), 0);
  });
  return Math.max(...gaps);
}
