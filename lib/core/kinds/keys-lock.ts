import { inspect } from 'node:util';
import { foreignKeyError, severalTokensError } from '../error-factories.js';
import { CompositeLock } from './composite-lock.js';

/** The lock of several keys: one lock for each. */
export class KeysLock extends CompositeLock {
  override get keys(): readonly string[] {
    return this.parts.map((part) => part.key);
  }

  /** @throws LockConfigError, because each key has a token of its own */
  override get fencingToken(): bigint {
    throw severalTokensError(this.keys);
  }

  override fencingTokenOf(key: string): bigint {
    const part = this.parts.find((each) => each.key === key);
    if (!part) throw foreignKeyError(key, this.keys);
    return part.fencingToken;
  }

  override toJSON(): object {
    return this.#print(String);
  }

  override [inspect.custom](): object {
    return this.#print((token) => token);
  }

  #print(format: (token: bigint) => unknown): object {
    const tokens = this.parts.map((part) => [part.key, format(part.fencingToken)] as const);
    const fencingTokens: Record<string, unknown> = Object.fromEntries(tokens);
    return { key: this.key, fencingTokens, remainingMs: this.remainingMs() };
  }
}
