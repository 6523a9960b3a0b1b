import { LockConfigError } from './errors.js';
import { formatValue } from './format.js';
import { isStorable } from './key.js';

type Fields = Readonly<Record<string, unknown>>;

/** Checks an options object and collects all errors, so that one exception reports them together. */
export class OptionErrors {
  readonly #messages: string[] = [];

  add(message: string): void {
    this.#messages.push(message);
  }

  /** `undefined` is always valid: it means the default. */
  expect(path: string, value: unknown, expected: string, isValid: boolean): void {
    if (value !== undefined && !isValid)
      this.add(`expected ${path} to be ${expected}, got ${formatValue(value)}`);
  }

  /**
   * Returns the value as an object, `{}` if it is none. Adds an error for each unknown field. `hints`: where a field belongs
   * that is not known here.
   */
  object(
    path: string,
    value: unknown,
    known: readonly string[],
    hints: Readonly<Record<string, string>> = {},
  ): Fields {
    if (value === undefined) return {};
    if (typeof value !== 'object' || value === null) {
      this.add(`expected ${path} to be an object, got ${formatValue(value)}`);
      return {};
    }
    for (const name of Object.keys(value)) {
      if (known.includes(name)) continue;
      this.add(`${path} has no option '${name}'; ${hints[name] ?? `it knows ${known.join(', ')}`}`);
    }
    return value as Fields;
  }

  durationMs(
    path: string,
    value: unknown,
    { min = 0, max = MAX_DURATION_MS }: { min?: number; max?: number } = {},
  ): void {
    const isValid = typeof value === 'number' && value >= min && value <= max;
    const upperLimit = max === Infinity ? '' : ` and at most ${max}`;
    this.expect(path, value, `a number of milliseconds, at least ${min}${upperLimit}`, isValid);
  }

  integerMs(
    path: string,
    value: unknown,
    { min, max = MAX_DURATION_MS }: { min: number; max?: number },
  ): void {
    const isValid = Number.isInteger(value) && (value as number) >= min && (value as number) <= max;
    this.expect(path, value, `a whole number of milliseconds from ${min} to ${max}`, isValid);
  }

  boolean(path: string, value: unknown): void {
    this.expect(path, value, 'true or false', typeof value === 'boolean');
  }

  oneOf(path: string, value: unknown, choices: readonly string[]): void {
    if (value !== undefined) this.requiredOneOf(path, value, choices);
  }

  requiredOneOf(path: string, value: unknown, choices: readonly string[]): void {
    if (choices.includes(value as string)) return;
    const expected = choices.map((choice) => `'${choice}'`).join(' or ');
    this.add(`expected ${path} to be ${expected}, got ${formatValue(value)}`);
  }

  text(path: string, value: unknown, limits: { max: number }): void {
    if (value !== undefined) this.requiredText(path, value, limits);
  }

  requiredText(path: string, value: unknown, { max }: { max: number }): void {
    const isValid = typeof value === 'string' && value.length > 0 && value.length <= max && isStorable(value);
    if (isValid) return;
    this.add(
      `expected ${path} to be a text of 1 to ${max} well-formed characters without NUL, got ${formatValue(value)}`,
    );
  }

  /** @throws LockConfigError with all collected errors */
  throwIfAny(context: string): void {
    if (this.#messages.length > 0) throw new LockConfigError(`${context}: ${this.#messages.join('; ')}.`);
  }
}

/** 24 days: the longest duration that every store and timer supports. */
const MAX_DURATION_MS = 2 ** 31 - 1;

/** What a factory needs for an option that it usually gets from Nest. */
const INJECTED: Readonly<Record<string, string>> = { dataSource: 'inject: [DataSource]', client: 'inject' };

/** Options that are usually read from the environment. */
const FROM_ENVIRONMENT = ['url', 'hosts', 'servers'];

/** The hint after "got undefined" if the option was named, but its value is missing. */
export function unsetHint(options: object, name: string, path = name): string {
  if (!(name in options) || (options as Fields)[name] !== undefined) return '';
  if (FROM_ENVIRONMENT.includes(name)) return unsetVariableHint(path);
  const why = 'because it is assigned later or is part of a circular import';
  const inject = INJECTED[name];
  if (inject === undefined) return `: ${path} has no value yet, ${why}`;
  return `: ${path} has no value yet, probably because \`${inject}\` is missing in forRootAsync(), or ${why}`;
}

/** The same hint for an option that usually comes from the environment. */
export const unsetVariableHint = (path: string): string =>
  `: ${path} has no value, probably because an environment variable is not set`;
