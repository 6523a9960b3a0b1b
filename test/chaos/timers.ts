/** A timer as Node keeps it. */
interface Kept extends NodeJS.Timeout {
  readonly _destroyed: boolean;
  readonly _idleTimeout: number;
}

/** Where each timer was set. It must be imported before what sets them. */
const places = new Map<Kept, string>();

globalThis.setTimeout = remembered(globalThis.setTimeout);
globalThis.setInterval = remembered(globalThis.setInterval);

/** The timers that keep the process alive, and where they were set if they were not set by Node itself. */
export function timersLeft(): string[] {
  const left = process.getActiveResourcesInfo().filter((resource) => resource === 'Timeout');
  if (left.length === 0) return [];
  const known = [...places].filter(([timer]) => timer.hasRef() && !timer._destroyed);
  return known.length === 0
    ? left
    : known.map(([timer, place]) => `Timeout of ${timer._idleTimeout} ms\n${place}`);
}

function remembered<Set extends typeof setTimeout | typeof setInterval>(set: Set): Set {
  return new Proxy(set, {
    apply(target, self, args) {
      const timer = Reflect.apply(target, self, args) as Kept;
      const [, , ...callers] = new Error().stack!.split('\n');
      places.set(timer, callers.join('\n'));
      return timer;
    },
  });
}
