import { expect, it } from 'vitest';
import { changeFailedError, readFailedError, unavailableError } from '../../../lib/core/error-factories.js';
import { LockUnavailableError } from '../../../lib/core/errors.js';

const withCode = (message: string, code: string) => Object.assign(new Error(message), { code });

it.each([
  [
    'WRONGPASS',
    new Error('WRONGPASS invalid username-password pair'),
    /refuses the credentials: check the user/,
  ],
  [
    'NOAUTH',
    new Error('cannot reach Redis', { cause: new Error('NOAUTH Authentication required.') }),
    /asks for a password/,
  ],
  [
    'an unknown database',
    withCode('database "shop" does not exist', '3D000'),
    /does not have the database: check its name/,
  ],
  ['a missing right', new Error("NOPERM User 'app' has no permissions"), /check its ACL/],
])('the error of a call says that the store refuses, and what to check: %s', (_, cause, advice) => {
  const error = unavailableError('order:1', cause);
  expect(error).toBeInstanceOf(LockUnavailableError);
  expect(error.message).toMatch(advice);
  expect(error.message).toMatch(/"order:1"/);
  expect(error.message).not.toMatch(/Try again/);
});

it.each([
  ['a refused connection', withCode('connect ECONNREFUSED 127.0.0.1:28000', 'ECONNREFUSED')],
  ['a server that takes no writes', new Error("READONLY You can't write against a read only replica.")],
  ['no reply', new Error('no reply within 2000 ms')],
])('the error of a call says to try again after %s', (_, cause) => {
  expect(unavailableError('order:1', cause).message).toMatch(
    /did not say whether .*Try again when the store/,
  );
});

it('the error of a read speaks of no change, and that of a list of no key', () => {
  const cause = new Error('Command timed out');
  const messages = [readFailedError('order:1', cause), readFailedError('', cause)].map(
    ({ message }) => message,
  );
  expect(messages).toEqual([
    'The store did not answer about "order:1" (Command timed out). Try again when it answers.',
    'The store did not answer (Command timed out). Try again when it answers.',
  ]);
  expect(changeFailedError('order:1', cause).message).toMatch(/may or may not have taken effect/);
});
