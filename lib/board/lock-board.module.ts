import { randomUUID } from 'node:crypto';
import {
  type DynamicModule,
  Inject,
  Module,
  type OnModuleDestroy,
  Optional,
  type Provider,
} from '@nestjs/common';
import { systemClock } from '../core/clock.js';
import { LockConfigError } from '../core/errors.js';
import type { Elections } from '../election/elections.js';
import { getElectionsPropertyToken } from '../election/leader-election.service.js';
import { type LockService, getLockServiceToken } from '../lock.service.js';
import { type CronRuns, getCronRunsToken } from '../schedule/cron-runs.js';
import { type JobRunner, getJobRunnerPropertyToken } from '../schedule/job-runner.js';
import { BoardFeed } from './board-feed.js';
import { BoardJobReader } from './board-jobs.js';
import { BoardReader } from './board-reader.js';
import { createActionsController } from './actions.controller.js';
import { BoardActions } from './board-actions.js';
import { PAGE_FILES, createPageController } from './page.controller.js';
import {
  type LockBoardModuleOptions,
  type ResolvedBoardOptions,
  requireLockModule,
  resolveBoardOptions,
} from './lock-board.options.js';
import { readPageFiles } from './page-files.js';
import { RecentEvents } from './recent-events.js';

const BOARD_LOCKS = Symbol('LockService of the board');

/** Serves a page that shows locks, jobs, leaders, the store and recent events. Import it beside `DistributedLockModule`. */
@Module({})
export class LockBoardModule implements OnModuleDestroy {
  readonly #feed: BoardFeed;
  readonly #events: RecentEvents;

  constructor(
    @Optional() @Inject(BoardFeed) feed?: BoardFeed,
    @Optional() @Inject(RecentEvents) events?: RecentEvents,
  ) {
    if (!feed || !events) {
      throw new LockConfigError(
        'LockBoardModule is imported without options. Write LockBoardModule.forRoot({ guards: [YourAdminGuard] }) in the imports.',
      );
    }
    this.#feed = feed;
    this.#events = events;
  }

  /** @throws LockConfigError for wrong options, and without `guards` */
  static forRoot(options: LockBoardModuleOptions): DynamicModule {
    const resolved = resolveBoardOptions(options);
    return {
      module: LockBoardModule,
      imports: [...(resolved.imports ?? [])],
      controllers: createControllers(resolved),
      providers: createProviders(resolved),
    };
  }

  /** Ends the streams before the server closes, because it waits for them. */
  onModuleDestroy(): void {
    this.#feed.close();
    this.#events.close();
  }
}

const createControllers = (options: ResolvedBoardOptions) =>
  options.actions === 'all'
    ? [createPageController(options), createActionsController(options)]
    : [createPageController(options)];

function createProviders({ name, actions }: ResolvedBoardOptions): Provider[] {
  return [
    // With moduleIdGeneratorAlgorithm: 'deep-hash', Nest would take two boards with like options for the same module.
    { provide: Symbol('LockBoardModule identity'), useValue: randomUUID() },
    { provide: PAGE_FILES, useFactory: readPageFiles },
    {
      provide: BOARD_LOCKS,
      useFactory: (locks?: LockService) => requireLockModule(locks, name),
      inject: [optional(getLockServiceToken(name))],
    },
    {
      provide: RecentEvents,
      useFactory: (locks: LockService) => new RecentEvents(locks.source, () => systemClock.wallMs()),
      inject: [BOARD_LOCKS],
    },
    {
      provide: BoardReader,
      useFactory: (...[locks, events, elections, runner]: ReaderDependencies) =>
        new BoardReader({ locks, events, elections, jobs: new BoardJobReader(runner) }),
      inject: [
        BOARD_LOCKS,
        RecentEvents,
        ...[getElectionsPropertyToken(name), getJobRunnerPropertyToken(name)].map(optional),
      ],
    },
    ...(actions === 'all' ? [actionsProvider(name)] : []),
    {
      provide: BoardFeed,
      useFactory: (reader: BoardReader) => new BoardFeed(reader),
      inject: [BoardReader],
    },
  ];
}

type ReaderDependencies = [locks: LockService, events: RecentEvents, elections: Elections, runner: JobRunner];

const actionsProvider = (name: string | undefined): Provider => ({
  provide: BoardActions,
  useFactory: (locks: LockService, feed: BoardFeed, runner: JobRunner, cronRuns: CronRuns) =>
    new BoardActions({ locks, feed, runner, cronRuns }),
  inject: [
    BOARD_LOCKS,
    BoardFeed,
    ...[getJobRunnerPropertyToken(name), getCronRunsToken(name)].map(optional),
  ],
});

/** Without the lock module, its `LockService` is missing too, which has a message of its own. */
const optional = (token: string | symbol | typeof LockService | typeof CronRuns) => ({
  token,
  optional: true,
});
