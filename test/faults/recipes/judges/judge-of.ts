import type { DriverName } from '../messages.js';
import { FencedWriteJudge } from './fenced-write.js';
import { JobJudge } from './job.js';
import type { Judge } from './judge.js';
import { LeaderJudge } from './leader.js';
import { LockingJudge } from './locking.js';
import { TaskClaimJudge } from './task-claim.js';

const judges: Readonly<Record<DriverName, new () => Judge>> = {
  locking: LockingJudge,
  'fenced-write': FencedWriteJudge,
  'task-claim': TaskClaimJudge,
  job: JobJudge,
  leader: LeaderJudge,
};

export const judgeOf = (driver: DriverName): Judge => new judges[driver]();
