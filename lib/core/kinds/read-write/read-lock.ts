import { inspect } from 'node:util';
import { readTokenError } from '../../error-factories.js';
import { CompositeLock } from '../composite-lock.js';

/** The lock of one reader. */
export class ReadLock extends CompositeLock {
  /** @throws LockConfigError, because nothing may be written under it */
  override get fencingToken(): bigint {
    throw readTokenError(this.key);
  }

  override toJSON(): object {
    return { key: this.key, mode: 'read', remainingMs: this.remainingMs() };
  }

  override [inspect.custom](): object {
    return this.toJSON();
  }
}
