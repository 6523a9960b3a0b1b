import {
  BadRequestException,
  ConflictException,
  NotFoundException,
  ServiceUnavailableException,
} from '@nestjs/common';
import { LockConfigError, LockError } from '../core/errors.js';
import { parseFencingToken } from '../core/fence.js';
import { isPermit } from '../core/store-key.js';
import type { BoardFeed } from './board-feed.js';
import type { LockService } from '../lock.service.js';
import type { CronRuns } from '../schedule/cron-runs.js';
import type { JobRunner } from '../schedule/job-runner.js';
import type { Job } from '../schedule/job.js';

interface ActionsParts {
  readonly locks: LockService;
  readonly runner: JobRunner;
  readonly cronRuns: CronRuns;
  readonly feed: BoardFeed;
}

/** What an action has done: the message for the log, and fields for the page. */
interface ActionResult {
  readonly message: string;
  readonly [field: string]: unknown;
}

/** What the page may change with `actions: 'all'`. All methods reject with an `HttpException`. */
export class BoardActions {
  readonly #parts: ActionsParts;

  constructor(parts: ActionsParts) {
    this.#parts = parts;
  }

  /** Releases exactly the grant that the page has shown. */
  async release(body: unknown): Promise<ActionResult> {
    const { key, ...grant } = readGrant(body);
    const released = await forHttp(this.#parts.locks.forceRelease(key, grant), {
      config: ({ message }) => new BadRequestException(message),
    });
    if (!released) throw new ConflictException('This grant no longer holds the key.');
    const { permit, fencingToken } = grant;
    const what = `${permit === undefined ? 'the lock' : `permit ${permit} of`} ${JSON.stringify(key)}`;
    const message = `Released ${what} of token ${fencingToken} by force.`;
    return { message, released };
  }

  /** Replies when the run has begun, because it may take hours. */
  async run(body: unknown): Promise<ActionResult> {
    const job = this.#readJob(body);
    const { record, ended } = await forHttp(this.#parts.runner.manualRuns.start(job), {
      config: ({ message }) => new ConflictException(message),
    });
    void this.#parts.feed.refreshJob(job.key);
    void ended?.then(() => this.#parts.feed.refreshJob(job.key));
    const started = ended !== undefined;
    const message = started
      ? `Runs the job ${JSON.stringify(job.key)} now.`
      : `Did not run the job ${JSON.stringify(job.key)}, because it is running on ${record.instance}.`;
    return { message, started, instance: record.instance };
  }

  async setPaused(body: unknown, paused: boolean): Promise<ActionResult> {
    const { key } = this.#readJob(body);
    const { cronRuns } = this.#parts;
    await forHttp(paused ? cronRuns.pause(key) : cronRuns.resume(key), {});
    void this.#parts.feed.refreshJob(key);
    return { message: `${paused ? 'Paused' : 'Resumed'} the job ${JSON.stringify(key)}.`, paused };
  }

  #readJob(body: unknown): Job {
    const { job: key } = Object(body) as { job?: unknown };
    if (typeof key !== 'string') throw new BadRequestException('Expected { job } as a text.');
    const job = this.#parts.runner.jobs.find(key);
    if (job) return job;
    throw new NotFoundException('This replica has no such job.');
  }
}

async function forHttp<T>(
  action: Promise<T>,
  { config }: { readonly config?: (error: LockConfigError) => Error },
): Promise<T> {
  try {
    return await action;
  } catch (cause) {
    if (cause instanceof LockConfigError && config) throw config(cause);
    if (!(cause instanceof LockError)) throw cause;
    throw new ServiceUnavailableException('The store did not confirm it: look, and try again.', { cause });
  }
}

/** @throws BadRequestException */
function readGrant(body: unknown): { key: string; fencingToken: bigint; permit?: number } {
  const given = Object(body) as { key?: unknown; fencingToken?: unknown; permit?: unknown };
  const { key, permit } = given;
  const fencingToken = parseFencingToken(given.fencingToken);
  if (typeof key === 'string' && fencingToken !== undefined) {
    if (permit === undefined) return { key, fencingToken };
    if (isPermit(permit)) return { key, fencingToken, permit };
  }
  throw new BadRequestException(
    'Expected { key, fencingToken }, both as texts, and for a permit its number { permit }.',
  );
}
