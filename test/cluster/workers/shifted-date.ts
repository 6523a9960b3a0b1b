const RealDate = Date;
let shiftMs = 0;

// Imported before what keeps `Date.now`.
globalThis.Date = class extends RealDate {
  constructor(...args: unknown[]) {
    if (args.length === 0) super(RealDate.now() + shiftMs);
    else super(...(args as [number]));
  }
  static override now(): number {
    return RealDate.now() + shiftMs;
  }
} as DateConstructor;

/** Moves the wall clock of this process on, and nothing else. Monotonic time goes on as it is. */
export function shiftDate(byMs: number): void {
  shiftMs += byMs;
}
