import type { Requests } from '../../../lib/core/backend.js';

/** What each exchange asked for, as `verb key` in the order of the request. */
export function recorded(backend: { exchange(requests: Requests): Promise<unknown> }): string[][] {
  const exchanges: string[][] = [];
  const exchange = backend.exchange.bind(backend) as (requests: Requests) => Promise<never>;
  backend.exchange = (requests: Requests) => {
    exchanges.push(
      Object.entries(requests).flatMap(([verb, list]: [string, readonly { key: string }[]]) =>
        list.map(({ key }) => `${verb} ${key}`),
      ),
    );
    return exchange(requests);
  };
  return exchanges;
}
