import { VERSION } from './version.js';

/**
 * A process may load this package more than once: as an ES module and as CommonJS, or from two folders. All copies of
 * one version share the values that are compared by identity. Copies of different versions refuse to boot.
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

/** Returns the value that the first copy created under this name. */
export function shareAcrossCopies<T>(name: string, create: () => T): T {
  if (!sharedValues.has(name)) sharedValues.set(name, create());
  return sharedValues.get(name) as T;
}

/**
 * Replaces a class by that of the first copy, so that `instanceof` and Nest's injection recognise it in all copies. Not
 * for classes that use tokens of Nest: a spec that resets its modules loads Nest again.
 */
export const SharedAcrossCopies =
  (name: string) =>
  <Class extends abstract new (...args: never[]) => unknown>(own: Class): Class =>
    shareAcrossCopies(name, () => Object.defineProperty(own, 'name', { value: name, configurable: true }));

/**
 * Makes `instanceof` recognise the instances of all copies, while each copy keeps a class of its own. For classes that work
 * with other classes of their copy.
 */
export const RecognisedAcrossCopies =
  (name: string) =>
  (own: abstract new (...args: never[]) => object): void => {
    const mark = Symbol.for(`nestjs-distributed-lock:class ${name}`);
    const isInstance = (value: unknown) => typeof value === 'object' && value !== null && mark in value;
    Object.defineProperty(own.prototype, mark, { value: true });
    Object.defineProperty(own, Symbol.hasInstance, { value: isInstance });
  };

/** Returns why this copy must not boot, or `undefined` if it may. */
export function describeVersionConflict(): string | undefined {
  if (loaded.length < 2) return undefined;
  const found = loaded.map(({ version, file }) => `${version} (${file})`).join(' and ');
  return (
    `Expected one version of nestjs-distributed-lock in a process, found ${found}. Services, decorators and errors of one ` +
    `are unknown to the other. Run "npm ls nestjs-distributed-lock" to see which package installs it, and keep one version by ` +
    `"npm dedupe" or "overrides" in package.json.`
  );
}

/** Reads the file from the stack, because neither CommonJS nor a bundle has `import.meta.url`. */
function fileOfStack(stack = ''): string {
  return /((?:file:|\/|[A-Za-z]:\\)[^\n]*?):\d+:\d+\)?$/m.exec(stack)?.[1] ?? 'in a file that is not known';
}
