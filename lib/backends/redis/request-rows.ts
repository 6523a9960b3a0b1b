/** A request to a script: what is wanted, and by whom. */
interface RowRequest {
  readonly command: unknown;
  readonly holder: string;
}

/**
 * Adds requests to the words for a script: neighbours with the same terms are a row, which has one head, with the number of
 * its requests as the second word, and then their holders.
 */
export function appendRequestRows<Request extends RowRequest>(
  values: string[],
  requests: readonly Request[],
  encodeHead: (command: Request['command']) => readonly string[],
): void {
  let shared: Request['command'] | undefined;
  let countAt = 0;
  let count = 0;
  for (const { command, holder } of requests) {
    if (command !== shared) {
      shared = command;
      count = 0;
      countAt = values.length + 1;
      values.push(...encodeHead(command));
    }
    count += 1;
    values[countAt] = String(count);
    values.push(holder);
  }
}
