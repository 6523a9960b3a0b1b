/** A timer as Node keeps it. */
interface Kept extends NodeJS.Timeout {
  readonly _destroyed: boolean;
  readonly _idleTimeout: number;
}

/** Where each timer was set. It must be imported before what sets them. */
const places = new Map<Kept, Error>();
const MANY = 10_000;

globalThis.setTimeout = remembered(globalThis.setTimeout);
globalThis.setInterval = remembered(globalThis.setInterval);

/** The timers that keep the process alive, and where they were set if they were not set by Node itself. */
export function timersLeft(): string[] {
  const left = process.getActiveResourcesInfo().filter((resource) => resource === 'Timeout');
  if (left.length === 0) return [];
  forgetTheDone();
  const known = [...places].filter(([timer]) => timer.hasRef());
  return known.length === 0
    ? left
    : known.map(([timer, { stack }]) => `Timeout of ${timer._idleTimeout} ms\n${stack}`);
}

function remembered<SetTimer extends typeof setTimeout | typeof setInterval>(set: SetTimer): SetTimer {
  return new Proxy(set, {
    apply(target, self, args) {
      const timer = Reflect.apply(target, self, args) as Kept;
      if (places.size >= MANY) forgetTheDone();
      places.set(timer, new Error('set'));
      return timer;
    },
  });
}

function forgetTheDone(): void {
  for (const timer of places.keys()) if (timer._destroyed) places.delete(timer);
}
