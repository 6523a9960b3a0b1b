import { LockConfigError } from '../core/errors.js';
import { formatValue } from '../core/format.js';

/** A piece of literal text, or the path of a placeholder into the arguments. */
type Piece = string | readonly string[];

const PLACEHOLDER = /\{(\d+(?:\.[^{}.\s]+)*)\}/;
/** The first part in braces, or a brace without its counterpart. */
const BRACED = /\{[^{}]*\}?|\}/;

/**
 * Turns `'order:{0.id}'` into a function of the arguments.
 *
 * Two different lists of values never give the same key. In a value, `%`, `:` and each punctuation mark that stands between
 * placeholders are percent-encoded, so only the marks of the template separate values.
 *
 * @throws LockConfigError for a malformed template; the returned function throws it if a placeholder has no value
 */
export function compileKeyTemplate(
  template: string,
  location: string,
  parameters = Infinity,
): (args: readonly unknown[]) => string {
  const pieces = parse(template, location);
  const paths = pieces.filter((piece) => typeof piece !== 'string');
  for (const path of paths) {
    if (Number(path[0]) < parameters) continue;
    throw new LockConfigError(
      `${location}: expected the placeholders of ${formatValue(template)} to name one of the ${parameters} parameters, counted from ` +
        `0, got {${path.join('.')}}. Correct its number.`,
    );
  }
  const separators = pieces.slice(1, -1).filter((piece) => typeof piece === 'string');
  for (const separator of separators) {
    if (!/[^\p{L}\p{N}]/u.test(separator)) {
      throw new LockConfigError(
        `${location}: expected a punctuation mark such as ':' between the placeholders of ${formatValue(template)}, got ` +
          `${formatValue(separator)}; without one, two different calls could get the same key.`,
      );
    }
  }
  const escapedCharacters = new Set([
    '%',
    ':',
    ...Array.from(separators.join('').replace(/[\p{L}\p{N}]/gu, '')),
  ]);
  const escape = (value: string) =>
    Array.from(value, (char) => (escapedCharacters.has(char) ? percentEncode(char) : char)).join('');
  return (args) =>
    pieces
      .map((piece) => (typeof piece === 'string' ? piece : escape(readValue(args, piece, location))))
      .join('');
}

/** Returns literal texts at even indexes and paths at odd ones. */
function parse(template: string, location: string): Piece[] {
  const pieces = template.split(PLACEHOLDER);
  if (template.includes('${')) {
    throw new LockConfigError(
      `${location}: expected placeholders like {0} in ${formatValue(template)}, got \${…}, which only JavaScript's own template ` +
        `literals fill in. Leave out the $, or pass a function of the arguments.`,
    );
  }
  const indexed = pieces.find((piece, index) => index % 2 === 1 && /[[\]]/.test(piece));
  if (indexed !== undefined) {
    throw new LockConfigError(
      `${location}: expected paths with dots in ${formatValue(template)}, got {${indexed}}. Write {0.items.0} for the first item.`,
    );
  }
  const stray = pieces.find((piece, index) => index % 2 === 0 && /[{}]/.test(piece));
  if (stray !== undefined) {
    throw new LockConfigError(
      `${location}: expected placeholders like {0} or {0.id} in ${formatValue(template)}, got ${formatValue(stray.match(BRACED)?.[0] ?? stray)}. For a key with ` +
        `braces of its own, pass a function of the arguments.`,
    );
  }
  return pieces.map((piece, index) => (index % 2 === 0 ? piece : piece.split('.')));
}

function readValue(args: readonly unknown[], path: readonly string[], location: string): string {
  let value: unknown = args;
  for (const step of path) {
    value = value === null || value === undefined ? undefined : (value as Record<string, unknown>)[step];
  }
  if (value === '') {
    throw new LockConfigError(
      `${location}: expected a value for {${path.join('.')}}, got an empty text, which all callers without a value would share ` +
        `as their key. Check it before the call, or give a function of the arguments as the key.`,
    );
  }
  const isAllowed =
    typeof value === 'string' ||
    typeof value === 'bigint' ||
    typeof value === 'boolean' ||
    Number.isFinite(value);
  if (!isAllowed) {
    throw new LockConfigError(
      `${location}: expected a string, number, bigint or boolean for {${path.join('.')}}, got ${formatValue(value)}. ` +
        `Pass a value, name a property that has one, or give a function of the arguments as the key.`,
    );
  }
  return String(value);
}

const percentEncode = (char: string) =>
  [...Buffer.from(char)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join('');
