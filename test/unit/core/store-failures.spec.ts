import { expect, it } from 'vitest';
import { describeStoreFailure } from '../../../lib/core/store-failures.js';

it.each([
  [
    "Access denied for user 'shop'@'%' to database 'lock'",
    /^does not allow this user to use the database: grant it rights/,
  ],
  [
    "Access denied for user 'shop'@'%' (using password: YES)",
    /^refuses the credentials: check the user name/,
  ],
])('MariaDB says "%s"', (reply, description) => {
  expect(describeStoreFailure(new Error(reply))).toMatch(description);
});
