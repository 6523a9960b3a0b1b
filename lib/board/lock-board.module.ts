import { randomUUID } from 'node:crypto';
import { type DynamicModule, Inject, Module, type OnModuleDestroy, type Provider } from '@nestjs/common';
import { systemClock } from '../core/clock.js';
import type { Elections } from '../election/elections.js';
import { getElectionsPropertyToken } from '../election/leader-election.service.js';
import { type LockService, getLockServiceToken } from '../lock.service.js';
import { type CronRuns, getCronRunsToken } from '../schedule/cron-runs.js';
import { type JobRunner, getJobRunnerPropertyToken } from '../schedule/job-runner.js';
import { BoardFeed } from './board-feed.js';
import { JobHistories } from './job-histories.js';
import { BoardReader } from './board-reader.js';
import { BOARD_LOCKS, PAGE_FILES, createControllers } from './board.controllers.js';
import { type LockBoardModuleOptions, requireLockModule, resolveBoardOptions } from './lock-board.options.js';
import { readPageFiles } from './page-files.js';
import { RecentEvents } from './recent-events.js';

/** Serves a page that shows locks, jobs, leaders, the store and recent events. Import it beside `DistributedLockModule`. */
@Module({})
export class LockBoardModule implements OnModuleDestroy {
  readonly #feed: BoardFeed;
  readonly #events: RecentEvents;

  constructor(@Inject(BoardFeed) feed: BoardFeed, @Inject(RecentEvents) events: RecentEvents) {
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
      providers: createProviders(resolved.name),
    };
  }

  /** Ends the streams before the server closes, because it waits for them. */
  onModuleDestroy(): void {
    this.#feed.close();
    this.#events.close();
  }
}

function createProviders(name: string | undefined): Provider[] {
  const optional = (token: string | symbol | typeof LockService | typeof CronRuns) => ({
    token,
    optional: true,
  });
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
      useFactory: (...[locks, events, elections, runner, cronRuns]: ReaderDependencies) =>
        new BoardReader({ locks, events, elections, jobs: new JobHistories(runner, cronRuns) }),
      inject: [
        BOARD_LOCKS,
        RecentEvents,
        ...[getElectionsPropertyToken(name), getJobRunnerPropertyToken(name), getCronRunsToken(name)].map(
          optional,
        ),
      ],
    },
    {
      provide: BoardFeed,
      useFactory: (reader: BoardReader) => new BoardFeed(reader),
      inject: [BoardReader],
    },
  ];
}

type ReaderDependencies = [
  locks: LockService,
  events: RecentEvents,
  elections: Elections,
  runner: JobRunner,
  cronRuns: CronRuns,
];
