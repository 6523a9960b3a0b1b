import type { EntityManager } from 'typeorm';
import { dataSourceOf } from '../database.js';

/**
 * A condition that is always true. On PostgreSQL it makes the commit of its transaction wait for the disk: after a crash the
 * rows must still reject what they rejected before. `remote_apply` waits for more than `on`, so it is kept.
 */
export const durableCommitCondition = (manager: EntityManager): string =>
  dataSourceOf(manager).options.type === 'postgres' ? DURABLE : '1 = 1';

const DURABLE =
  `CASE WHEN current_setting('synchronous_commit') IN ('on', 'remote_apply') THEN true ` +
  `ELSE set_config('synchronous_commit', 'on', true) IS NOT NULL END`;
