/** A timer as Node keeps it. */
interface TrackedTimer extends NodeJS.Timeout {
  readonly _destroyed: boolean;
  readonly _idleTimeout: number;
}

/** Where each timer was set. It must be imported before what sets them. */
const creationStacks = new Map<TrackedTimer, Error>();
const MANY = 10_000;

globalThis.setTimeout = trackTimers(globalThis.setTimeout);
globalThis.setInterval = trackTimers(globalThis.setInterval);

/** The timers that keep the process alive, and where they were set if they were not set by Node itself. */
export function timersLeft(): string[] {
  const left = process.getActiveResourcesInfo().filter((resource) => resource === 'Timeout');
  if (left.length === 0) return [];
  dropDestroyed();
  const known = [...creationStacks].filter(([timer]) => timer.hasRef());
  return known.length === 0
    ? left
    : known.map(([timer, { stack }]) => `Timeout of ${timer._idleTimeout} ms\n${stack}`);
}

function trackTimers<SetTimer extends typeof setTimeout | typeof setInterval>(set: SetTimer): SetTimer {
  return new Proxy(set, {
    apply(target, self, args) {
      const timer = Reflect.apply(target, self, args) as TrackedTimer;
      if (creationStacks.size >= MANY) dropDestroyed();
      creationStacks.set(timer, new Error('set'));
      return timer;
    },
  });
}

function dropDestroyed(): void {
  for (const timer of creationStacks.keys()) if (timer._destroyed) creationStacks.delete(timer);
}
