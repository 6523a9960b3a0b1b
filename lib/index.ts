export { DistributedLockModule } from './distributed-lock.module.js';
export type {
  DistributedLockFactoryOptions,
  DistributedLockModuleAsyncOptions,
  DistributedLockModuleOptions,
  DistributedLockOptionsFactory,
} from './distributed-lock.options.js';
export { LockExceptionFilter } from './lock-exception.filter.js';
export { InjectLockService, LockService, getLockServiceToken } from './lock.service.js';
export { lockKey } from './decorators/lock-key.js';
export { Locked, type LockedOptions } from './decorators/locked.decorator.js';
export {
  InjectLeaderElection,
  LeaderElection,
  getLeaderElectionToken,
} from './election/leader-election.service.js';
export type { Candidate, LeaderInfo, LeaderTerm } from './election/candidate.interface.js';
export type { ElectionOptions } from './election/election.js';
export {
  type ElectionHandlerOptions,
  LeaderOnly,
  type LeaderOnlyOptions,
  OnElected,
  type OnElectedOptions,
  OnRevoked,
} from './election/election.decorators.js';
export { SingletonCron } from './schedule/singleton-cron.decorator.js';
export type { SingletonCronOptions } from './schedule/singleton-cron.options.js';
export type { CronRun } from './schedule/job.js';
export { type CronHistory, CronRuns, InjectCronRuns, getCronRunsToken } from './schedule/cron-runs.js';
export type { JobOverride } from './schedule/registry/job-overrides.js';
export type { GuardOptions, GuardedTick } from './schedule/dynamic-job.js';
export type { JobInfo } from './schedule/job-reader.js';
export type { CronRunOutcome, CronRunRecord } from './schedule/run-record.js';
export { currentLock } from './core/lock-context.js';
export type { Lock } from './core/lock.js';
export type { LockOrderMode } from './core/lock-order.js';
export type { LockOrderEdge } from './core/lock-order-graph.js';
export type { ListOptions } from './core/list-options.js';
export type { LockInfo, LockList } from './core/lock-admin.js';
export type { AcquireOptions, LockMode, LockOptions, ShutdownOptions } from './core/options.js';
export type {
  LockEventMessage,
  LockEventName,
  LockEvents,
  LockPurpose,
  RevokeReason,
  RunEndOutcome,
  TickSkipReason,
} from './core/events.js';
export type { AcquireTrace, RunTrace } from './core/tracing-channels.js';
export {
  LockConfigError,
  LockError,
  type LockErrorCode,
  LockLostError,
  LockReentryError,
  LockShutdownError,
  LockTimeoutError,
  LockUnavailableError,
} from './core/errors.js';
export type {
  AcquireRequest,
  BatchResult,
  AcquisitionId,
  OnResult,
  LockBackend,
  ReleaseRequest,
  RenewRequest,
  RequestBatch,
} from './core/backend.js';
export type {
  AcquireResult,
  Granted,
  Released,
  ReleaseResult,
  RenewResult,
  Renewed,
  Taken,
} from './core/backend-results.js';
export type { ReleaseNotice, ServerStatus } from './core/store-notices.js';
export type { ListRequest, ListedLock, LockPage, LockRecord } from './core/lock-record.js';
export type { KeyCleanUp, TickClaim, TickRefused } from './core/tick.js';
export type { UnknownResult } from './core/unknown-result.js';
export type { Clock, Timer, TimerOptions } from './core/clock.js';
