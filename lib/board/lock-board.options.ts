import type { CanActivate, ModuleMetadata, Type } from '@nestjs/common';
import { LockConfigError } from '../core/errors.js';
import { formatValue } from '../core/format.js';
import { OptionErrors } from '../core/option-errors.js';

export interface LockBoardModuleOptions {
  /**
   * The path of the page, after the global prefix of the application.
   *
   * @default 'locks'
   */
  path?: string;
  /**
   * The guards of the page, its data and its actions: classes or instances, as for `@UseGuards()`. `'none'` if something
   * in front of the application guards the path. There is no default, because the page shows every key.
   */
  guards: readonly (Type<CanActivate> | CanActivate)[] | 'none';
  /** Modules that export what the guards inject. */
  imports?: ModuleMetadata['imports'];
  /**
   * `'all'` lets the page release locks, and run, pause and resume jobs. With `'read'`, the application has no route that changes anything.
   *
   * @default 'read'
   */
  actions?: 'read' | 'all';
  /** The name of the lock module whose locks are shown, if the application has several. */
  name?: string;
}

export type ResolvedBoardOptions = Required<Omit<LockBoardModuleOptions, 'name'>> & {
  readonly name: string | undefined;
};

const OPTIONS = ['path', 'guards', 'imports', 'actions', 'name'] as const;
const MAX_PATH_LENGTH = 256;

/** @throws LockConfigError that lists all errors at once */
export function resolveBoardOptions(options: LockBoardModuleOptions): ResolvedBoardOptions {
  const errors = new OptionErrors();
  const given = errors.object('options', options, OPTIONS);
  const isPath = typeof given['path'] === 'string' && given['path'].length <= MAX_PATH_LENGTH;
  errors.expect('options.path', given['path'], `a text of at most ${MAX_PATH_LENGTH} characters`, isPath);
  errors.expect('options.imports', given['imports'], 'an array of modules', Array.isArray(given['imports']));
  errors.oneOf('options.actions', given['actions'], ['read', 'all']);
  errors.text('options.name', given['name'], { max: 64 });
  if (!areGuards(given['guards'])) errors.add(describeGuards(given['guards']));
  errors.throwIfAny('Wrong options of LockBoardModule.forRoot()');
  const { path = 'locks', guards, imports = [], actions = 'read', name } = options;
  return { path, guards, imports, actions, name };
}

const areGuards = (value: unknown) =>
  value === 'none' || (Array.isArray(value) && value.length > 0 && value.every(isGuard));

const isGuard = (value: unknown) =>
  typeof value === 'function' || typeof (Object(value) as Partial<CanActivate>).canActivate === 'function';

const describeGuards = (value: unknown) =>
  `expected options.guards to be the guards of the page, got ${formatValue(value)}. The page shows every key, so write ` +
  `guards: [YourAdminGuard], with the module that exports what the guard injects in imports, or guards: 'none' if ` +
  `something in front of the application guards the path`;

/** @throws LockConfigError if the lock module of the page is missing */
export function requireLockModule<T>(service: T | undefined, name: string | undefined): T {
  if (service !== undefined) return service;
  const options = name === undefined ? '' : ` with the name '${name}'`;
  throw new LockConfigError(
    `LockBoardModule found no DistributedLockModule${options}. Import DistributedLockModule.forRoot(…)${options} in the ` +
      `root module. If it has isGlobal: false, pass it in the imports of LockBoardModule.forRoot() too.`,
  );
}
