/** A holder of a lock: reads under its token, then writes what it read plus one. The steps may be far apart. */
export interface Holder {
  read(): Promise<void>;
  /** Says whether the write was accepted. */
  write(): Promise<boolean>;
}

/**
 * Every order in which the steps of an older and a newer holder can follow each other. Two letters each: `old` reads and
 * writes, `new` reads and writes.
 */
export const ORDERS = [
  ['old', 'old', 'new', 'new'],
  ['old', 'new', 'old', 'new'],
  ['old', 'new', 'new', 'old'],
  ['new', 'old', 'old', 'new'],
  ['new', 'old', 'new', 'old'],
  ['new', 'new', 'old', 'old'],
] as const;

/** Takes the steps in this order, and answers how many writes were accepted. A refused read ends its holder. */
export async function runInOrder(
  order: (typeof ORDERS)[number],
  holders: { readonly old: Holder; readonly new: Holder },
  isRefusal: (error: unknown) => boolean,
): Promise<number> {
  const steps = { old: ['read', 'write'], new: ['read', 'write'] } as Record<string, ('read' | 'write')[]>;
  let accepted = 0;
  for (const who of order) {
    const step = steps[who]!.shift();
    if (!step) continue;
    try {
      if (step === 'read') await holders[who].read();
      else if (await holders[who].write()) accepted += 1;
    } catch (error) {
      if (!isRefusal(error)) throw error;
      steps[who] = [];
    }
  }
  return accepted;
}
