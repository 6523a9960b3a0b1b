/** A request to a script: its command and its holder. */
interface RowRequest {
  readonly command: unknown;
  readonly holder: string;
}

/**
 * Appends requests to the arguments of a script. Consecutive requests with the same command form a row: a head, which has
 * the number of requests as its second value, followed by their holders.
 */
export function appendRequestRows<Request extends RowRequest>(
  values: string[],
  requests: readonly Request[],
  encodeHead: (command: Request['command']) => readonly string[],
): void {
  let rowCommand: Request['command'] | undefined;
  let countAt = 0;
  let count = 0;
  for (const { command, holder } of requests) {
    if (command !== rowCommand) {
      rowCommand = command;
      count = 0;
      countAt = values.length + 1;
      values.push(...encodeHead(command));
    }
    count += 1;
    values[countAt] = String(count);
    values.push(holder);
  }
}
