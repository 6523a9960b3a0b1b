/** Aborts at SIGINT (Ctrl-C) or SIGTERM, so that there is time to end the replicas and to tidy up. */
export function interruption(): AbortSignal {
  const controller = new AbortController();
  // Not `once`: execa kills us when it finds nobody else listening.
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => controller.abort());
  return controller.signal;
}

/** What comes of the work, unless the signal aborts first. */
export async function unlessAborted<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  signal.throwIfAborted();
  const aborted = new Promise<never>((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason as Error));
  });
  return Promise.race([work(), aborted]);
}
