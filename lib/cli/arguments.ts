import { parseArgs } from 'node:util';
import { parseFencingToken } from '../core/fence.js';
import { DEFAULT_LIMIT } from '../core/list-options.js';
import { isPermit } from '../core/store-key.js';
import type { StoreAddress } from './open-store.js';
import { UsageError } from './usage-error.js';

export const HELP = `Usage: npx nestjs-distributed-lock <command> --url <url> [options]

Commands
  locks                      list the locks that are held now
  runs <job>                 list the last runs of a job, the newest first
  free <key> --token <n>     release a lock, if its grant still has this fencing token
                             (of a key with permits: also --permit <n>)

Options
  --url <url>           redis://, rediss://, postgres://, mysql:// or mariadb:// (default: LOCK_STORE_URL)
  --namespace <text>    as in the options of the lock module (default: lock)
  --key-prefix <text>   of Redis, as in the options of your client
  --table <name>        of a database (default: distributed_lock)
  --prefix <text>       locks: only keys that start with this text
  --limit <n>           locks: at most so many (default: 100)
  --token <n>           free: the fencing token that the command locks shows
  --permit <n>          free: the number of the permit that the command locks shows
  --json                print JSON instead of a table
  --version             print the version of the package
  --help                print this text

Exit codes
  0  done
  1  free: the grant with this token does not hold the key any more
  2  wrong arguments or settings
  3  the store cannot be used`;

interface StoreCommand {
  readonly store: StoreAddress;
  readonly json: boolean;
}

export interface LocksCommand extends StoreCommand {
  readonly name: 'locks';
  readonly prefix: string;
  readonly limit: number;
}

export interface RunsCommand extends StoreCommand {
  readonly name: 'runs';
  readonly job: string;
}

export interface FreeCommand extends StoreCommand {
  readonly name: 'free';
  readonly key: string;
  readonly fencingToken: bigint;
  /** Of a key with permits. */
  readonly permit: number | undefined;
}

export type Command =
  LocksCommand | RunsCommand | FreeCommand | { readonly name: 'help' } | { readonly name: 'version' };

const TEXT = { type: 'string' } as const;
const FLAG = { type: 'boolean' } as const;
const OPTIONS = {
  ...{ url: TEXT, namespace: TEXT, 'key-prefix': TEXT, table: TEXT },
  ...{ prefix: TEXT, limit: TEXT, token: TEXT, permit: TEXT },
  ...{ json: FLAG, version: FLAG, help: { ...FLAG, short: 'h' } },
} as const;

type Values = ReturnType<typeof parse>['values'];

/** @throws UsageError */
export function parseCommand(args: readonly string[]): Command {
  const { values, positionals } = parse(args);
  const [name, ...operands] = positionals;
  if (values.version) return { name: 'version' };
  if (values.help || name === undefined) return { name: 'help' };
  const json = values.json ?? false;
  switch (name) {
    case 'locks': {
      expectNoMore(operands);
      expectOptions(values, ['prefix', 'limit']);
      const { prefix = '', limit } = values;
      return { name, json, store: storeOf(values), prefix, limit: limitOf(limit) };
    }
    case 'runs': {
      expectOptions(values, []);
      return { name, json, store: storeOf(values), job: oneOf(operands, 'the key of a job') };
    }
    case 'free': {
      expectOptions(values, ['token', 'permit']);
      const key = oneOf(operands, 'the key of a lock');
      const [fencingToken, permit] = [tokenOf(values.token), permitOf(values.permit)];
      return { name, json, store: storeOf(values), key, fencingToken, permit };
    }
    default:
      throw new UsageError(`Unknown command "${hideCredentials(name)}".`);
  }
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true });
  } catch (error) {
    // Node adds how to pass a positional argument that begins with a hyphen.
    throw new UsageError(`${(error as Error).message.split(/\.\s/)[0]}.`);
  }
}

function oneOf([operand, ...others]: readonly string[], meaning: string): string {
  if (operand === undefined) throw new UsageError(`Missing: ${meaning}.`);
  expectNoMore(others);
  return operand;
}

function expectNoMore([other]: readonly string[]): void {
  if (other !== undefined) throw new UsageError(`Unexpected: "${hideCredentials(other)}".`);
}

/** An address without its option may have a password, and what a job prints is often kept. */
const hideCredentials = (text: string) => text.replace(/^(\w+:\/\/).*@/, '$1…@');

/** Rejects the options of other commands: they would have no effect. */
function expectOptions(values: Values, allowed: readonly string[]): void {
  const foreign = ['prefix', 'limit', 'token', 'permit'].find(
    (name) => name in values && !allowed.includes(name),
  );
  if (foreign) throw new UsageError(`This command has no option --${foreign}.`);
}

function storeOf({ url = process.env.LOCK_STORE_URL, namespace, table, ...values }: Values): StoreAddress {
  if (!url) throw new UsageError('Missing: --url, or the variable LOCK_STORE_URL.');
  return { url, namespace, table, keyPrefix: values['key-prefix'] };
}

function limitOf(text = String(DEFAULT_LIMIT)): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new UsageError('Expected --limit to be a whole number above 0.');
  return Number(text);
}

function tokenOf(text: string | undefined): bigint {
  const token = parseFencingToken(text);
  if (token !== undefined) return token;
  throw new UsageError('Expected --token to be the fencing token that the command locks shows.');
}

function permitOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (/^\d+$/.test(text) && isPermit(Number(text))) return Number(text);
  throw new UsageError('Expected --permit to be the number that the command locks shows.');
}
