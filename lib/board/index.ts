export { LockBoardModule } from './lock-board.module.js';
export type { LockBoardModuleOptions } from './lock-board.options.js';
