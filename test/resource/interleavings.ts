/** A holder of a lock: reads under its token, then writes what it read plus one. The steps may be far apart. */
export interface Holder {
  read(): Promise<void>;
  /** Resolves to whether the write was accepted. */
  write(): Promise<boolean>;
}

type Side = 'old' | 'new';
type Order = readonly [Side, Side, Side, Side];

/**
 * Every order in which the steps of an older and a newer holder can interleave. Two steps each: `old` reads and
 * writes, `new` reads and writes.
 */
export const ORDERS: readonly Order[] = [
  ['old', 'old', 'new', 'new'],
  ['old', 'new', 'old', 'new'],
  ['old', 'new', 'new', 'old'],
  ['new', 'old', 'old', 'new'],
  ['new', 'old', 'new', 'old'],
  ['new', 'new', 'old', 'old'],
];

/** Executes the steps in this order, and resolves to the number of accepted writes. After a rejected read its holder does nothing more. */
export async function runInOrder(
  order: Order,
  holders: { readonly old: Holder; readonly new: Holder },
  isRefusal: (error: unknown) => boolean,
): Promise<number> {
  const steps = { old: ['read', 'write'], new: ['read', 'write'] } as Record<string, ('read' | 'write')[]>;
  let accepted = 0;
  for (const holder of order) {
    const step = steps[holder]!.shift();
    if (!step) continue;
    try {
      if (step === 'read') await holders[holder].read();
      else if (await holders[holder].write()) accepted += 1;
    } catch (error) {
      if (!isRefusal(error)) throw error;
      steps[holder] = [];
    }
  }
  return accepted;
}
