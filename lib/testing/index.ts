export { type FireOptions, LockControl } from './lock-control.js';
export type { LockOrderEdge } from '../core/lock-order-graph.js';
export { LockTestingModule, type LockTestingModuleOptions } from './lock-testing.module.js';
export { SettableClock } from './settable-clock.js';
export { backendLaws } from './laws/backend-laws.js';
export type { Law, LawBench } from './laws/law.js';
