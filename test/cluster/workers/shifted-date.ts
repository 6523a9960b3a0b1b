/** Sets the wall clock of this process, and of nothing else. Monotonic time goes on as it is. */
export function shiftDate(byMs: number): void {
  const RealDate = Date;
  globalThis.Date = class extends RealDate {
    constructor(...args: unknown[]) {
      if (args.length === 0) super(RealDate.now() + byMs);
      else super(...(args as [number]));
    }
    static override now(): number {
      return RealDate.now() + byMs;
    }
  } as DateConstructor;
}
