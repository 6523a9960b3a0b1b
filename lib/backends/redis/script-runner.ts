import { createHash } from 'node:crypto';

/** What is needed to run a script. Every Redis and Cluster client of ioredis has it. */
export interface ScriptRunner {
  eval(script: string, keyCount: number, ...values: ScriptValue[]): Promise<unknown>;
  evalsha(sha1: string, keyCount: number, ...values: ScriptValue[]): Promise<unknown>;
}

/** A key or an argument of a script. */
export type ScriptValue = string | number | Buffer;

/** A script, with the hash by which a server knows it. */
export interface Script {
  readonly lua: string;
  readonly sha1: string;
}

export const scriptOf = (lua: string): Script => ({
  lua,
  sha1: createHash('sha1').update(lua).digest('hex'),
});

/**
 * Runs a script by its hash. If the server does not know the script (restart, failover, SCRIPT FLUSH), it has done nothing,
 * and the text is sent.
 */
export function evaluate(
  runner: ScriptRunner,
  { lua, sha1 }: Script,
  keyCount: number,
  values: readonly ScriptValue[],
): Promise<unknown> {
  return runner.evalsha(sha1, keyCount, ...values).catch((error: unknown) => {
    if (!isScriptUnknown(error)) throw error;
    return runner.eval(lua, keyCount, ...values);
  });
}

export const isScriptUnknown = (error: unknown) => (error as Error).message.startsWith('NOSCRIPT');

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
