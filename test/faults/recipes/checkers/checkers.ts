import type { DriverName } from '../messages.js';
import { FencedWriteChecker } from './fenced-write.js';
import { JobChecker } from './job.js';
import type { RecipeChecker } from './checker.js';
import { LeaderChecker } from './leader.js';
import { LockingChecker } from './locking.js';
import { TaskClaimChecker } from './task-claim.js';

const checkers: Readonly<Record<DriverName, new () => RecipeChecker>> = {
  locking: LockingChecker,
  'fenced-write': FencedWriteChecker,
  'task-claim': TaskClaimChecker,
  job: JobChecker,
  leader: LeaderChecker,
};

export const checkerFor = (driver: DriverName): RecipeChecker => new checkers[driver]();
