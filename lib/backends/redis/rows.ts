/** A request to a script: what is wanted, and by whom. */
interface RowRequest {
  readonly terms: unknown;
  readonly holder: string;
}

/**
 * Adds requests to the words for a script: neighbours with the same terms are a row, which has one head, with the number of
 * its requests as the second word, and then their holders.
 */
export function addRows<Request extends RowRequest>(
  words: string[],
  requests: readonly Request[],
  headOf: (terms: Request['terms']) => readonly string[],
): void {
  let shared: Request['terms'] | undefined;
  let countAt = 0;
  let count = 0;
  for (const { terms, holder } of requests) {
    if (terms !== shared) {
      shared = terms;
      count = 0;
      countAt = words.length + 1;
      words.push(...headOf(terms));
    }
    count += 1;
    words[countAt] = String(count);
    words.push(holder);
  }
}
