import { until } from '../support/until.js';

/** Holds calls until it is opened. */
export function openGate() {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
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
