import { afterEach } from 'vitest';
import { until } from '../support/until.js';

const opens: (() => void)[] = [];
// A call of a failed test would otherwise keep its transaction open, and the tables could not be dropped.
afterEach(() => {
  for (const open of opens.splice(0)) open();
});

/** Holds calls until it is opened, or the test ends. */
export function openGate() {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  opens.push(() => open());
  let passers = 0;
  const reachedBy = (count: number) => until(() => passers >= count);
  return {
    pass: (): Promise<void> => {
      passers += 1;
      return opened;
    },
    reachedBy,
    get reached() {
      return reachedBy(1);
    },
    open: () => open(),
  };
}
