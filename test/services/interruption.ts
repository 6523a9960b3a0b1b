/** Aborts at SIGINT or SIGTERM, so that there is time to tidy up; tidying up is bounded, so more signals change nothing. */
export function interruption(): AbortSignal {
  const controller = new AbortController();
  // Not `once`: execa kills us when it finds nobody else listening.
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => controller.abort());
  return controller.signal;
}
