import { createHash } from 'node:crypto';

/** What it takes to run a script: part of every Redis and Cluster client of ioredis. */
export interface ScriptRunner {
  eval(script: string, keyCount: number, ...values: ScriptValue[]): Promise<unknown>;
  evalsha(sha1: string, keyCount: number, ...values: ScriptValue[]): Promise<unknown>;
}

/** A key or an argument of a script. */
export type ScriptValue = string | number | Buffer;

/** A script and its name at the server. */
export interface Script {
  readonly lua: string;
  readonly sha1: string;
}

export const scriptOf = (lua: string): Script => ({
  lua,
  sha1: createHash('sha1').update(lua).digest('hex'),
});

/**
 * The server may have forgotten the script (restart, failover, SCRIPT FLUSH), and has done nothing then: the text itself
 * is sent.
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

const isScriptUnknown = (error: unknown) => (error as Error).message.startsWith('NOSCRIPT');
