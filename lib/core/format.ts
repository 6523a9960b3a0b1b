import { inspect } from 'node:util';

const MAX_PROPERTY_NAMES = 10;

/** What a text from outside could use to steer a terminal, or to begin another line. */
export const CONTROL_CHARACTERS = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** Keys may come from outside: one with a line break must not look like another line of the log. */
export const toOneLine = (text: string): string => text.replace(CONTROL_CHARACTERS, escapeCharacter);

const escapeCharacter = (character: string): string =>
  character === '\n' ? '\\n' : `\\u{${character.codePointAt(0)?.toString(16)}}`;

/**
 * Formats a value for an error message: short, on one line, with its type. Of an object only the type and the names of
 * its properties appear, because their values may be secrets.
 */
export function formatValue(value: unknown): string {
  if (typeof value === 'string' && value.length > 40) return `a string of ${value.length} characters`;
  if (typeof value === 'function') return 'a function';
  if (typeof value === 'object' && value !== null) return formatObject(value);
  return inspect(value);
}

function formatObject(value: object): string {
  if (Array.isArray(value)) return `an array of ${value.length} values`;
  const { constructor: type } = (Object.getPrototypeOf(value) ?? {}) as { readonly constructor?: unknown };
  const name = typeof type === 'function' && type !== Object ? `${type.name} ` : '';
  if (ArrayBuffer.isView(value)) return `${name}of ${value.byteLength} bytes`;
  const names = Object.keys(value);
  const more = names.length > MAX_PROPERTY_NAMES ? ', …' : '';
  const formattedNames = names.slice(0, MAX_PROPERTY_NAMES).map(formatName).join(', ');
  return formattedNames === '' ? `${name}{}` : `${name}{ ${formattedNames}${more} }`;
}

const formatName = (name: string) => (name.length > 40 ? `a name of ${name.length} characters` : name);

/** Returns the message of a thrown value. Never throws, whatever was thrown: that would hide the reason. */
export function formatReason(cause: unknown): string {
  try {
    const message: unknown = cause instanceof Error ? cause.message : cause;
    return typeof message === 'string' ? message : formatValue(message);
  } catch {
    return 'an error whose message cannot be read';
  }
}
