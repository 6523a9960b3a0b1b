import { VERSION } from './version.js';

/**
 * A process may load this package more than once: as an ES module and as CommonJS, or from two folders. All copies of one
 * version share what is recognised by identity; copies of two versions refuse to boot.
 */
interface LoadedVersion {
  readonly version: string;
  /** The file of its first copy. */
  readonly file: string;
  readonly shared: Map<string, unknown>;
}

const LOADED = Symbol.for('nestjs-distributed-lock:loaded');

const loaded = ((globalThis as Record<symbol, unknown>)[LOADED] ??= []) as LoadedVersion[];

function findOrAddVersion(): LoadedVersion {
  const found = loaded.find(({ version }) => version === VERSION);
  if (found) return found;
  const added = {
    version: VERSION,
    file: fileOfStack(new Error().stack),
    shared: new Map<string, unknown>(),
  };
  loaded.push(added);
  return added;
}

const { shared: sharedValues } = findOrAddVersion();

/** The thing of this name that the first copy has made. */
export function shareAcrossCopies<T>(name: string, create: () => T): T {
  if (!sharedValues.has(name)) sharedValues.set(name, create());
  return sharedValues.get(name) as T;
}

/**
 * Replaces a class by that of the first copy, so that `instanceof` and Nest's injection know it in all of them. Not for
 * classes that name tokens of Nest: a spec that resets its modules loads Nest anew.
 */
export const SharedAcrossCopies =
  (name: string) =>
  <Class extends abstract new (...args: never[]) => unknown>(own: Class): Class =>
    shareAcrossCopies(name, () => Object.defineProperty(own, 'name', { value: name, configurable: true }));

/** Why this copy must not boot, if there is a reason. */
export function describeVersionConflict(): string | undefined {
  if (loaded.length < 2) return undefined;
  const found = loaded.map(({ version, file }) => `${version} (${file})`).join(' and ');
  return (
    `Expected one version of nestjs-distributed-lock in a process, found ${found}. Services, decorators and errors of one ` +
    `are unknown to the other. Run "npm ls nestjs-distributed-lock" to see which package brings it, and keep one, by ` +
    `"npm dedupe" or "overrides" in package.json.`
  );
}

/** By the stack, as neither CommonJS nor a bundle has `import.meta.url`. */
function fileOfStack(stack = ''): string {
  return /((?:file:|\/|[A-Za-z]:\\)[^\n]*?):\d+:\d+\)?$/m.exec(stack)?.[1] ?? 'in a file that is not known';
}
