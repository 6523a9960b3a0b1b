import type { RequestBatch } from '../../../lib/core/backend.js';

/** What each exchange asked for, as `verb key` in the order of the request. */
export function recordRequests(backend: { execute(requests: RequestBatch): Promise<unknown> }): string[][] {
  const batches: string[][] = [];
  const execute = backend.execute.bind(backend) as (requests: RequestBatch) => Promise<never>;
  backend.execute = (requests: RequestBatch) => {
    batches.push(
      Object.entries(requests).flatMap(([verb, list]: [string, readonly { key: string }[]]) =>
        list.map(({ key }) => `${verb} ${key}`),
      ),
    );
    return execute(requests);
  };
  return batches;
}
