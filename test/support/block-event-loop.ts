/** As long work that never awaits does it. */
export const blockEventLoop = (forMs: number) =>
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, forMs);
