import { Inject, Injectable } from '@nestjs/common';
import { type HealthIndicatorResult, HealthIndicatorService } from '@nestjs/terminus';
import { LockError } from '../core/errors.js';
import { OptionErrors } from '../core/option-errors.js';
import { LockService } from '../lock.service.js';
import { describeStoreFailure } from '../core/store-failures.js';

export interface LockHealthOptions {
  /**
   * How long to wait for the store, in ms. After that, the result is `down`.
   *
   * @default 1_000
   */
  timeoutMs?: number;
}

const DEFAULT_TIMEOUT_MS = 1_000;

/** The states that `@nestjs/terminus` has a method for. Version 11 has no `degraded`. */
interface HealthSession {
  up(data: object): HealthIndicatorResult;
  down(data: object): HealthIndicatorResult;
  degraded?(data: object): HealthIndicatorResult;
}

/**
 * Reports to `@nestjs/terminus` whether locks can be acquired. Use it for readiness, not for liveness: a restart of the
 * process does not repair the store.
 */
@Injectable()
export class LockHealthIndicator {
  readonly #locks: LockService;
  readonly #indicators: HealthIndicatorService;

  /** For a named lock module, create it with `useFactory` and the `LockService` of that module. */
  constructor(
    @Inject(LockService) locks: LockService,
    @Inject(HealthIndicatorService) indicators: HealthIndicatorService,
  ) {
    this.#locks = locks;
    this.#indicators = indicators;
  }

  /**
   * Reads from the store. Resolves within `timeoutMs`, even if the store is frozen, and never rejects because of the
   * store. The result is `down` if the store cannot be used or the application is shutting down. It is `degraded` if
   * servers of a quorum are away, but locks are still granted; with `@nestjs/terminus` 11, `up` with `degraded: true`.
   *
   * @throws LockConfigError for wrong options
   */
  async isHealthy<const Name extends string>(
    name: Name,
    options: LockHealthOptions = {},
  ): Promise<HealthIndicatorResult<Name>> {
    const errors = new OptionErrors();
    errors.integerMs('options.timeoutMs', errors.object('options', options, ['timeoutMs'])['timeoutMs'], {
      min: 1,
    });
    errors.throwIfAny('LockHealthIndicator.isHealthy()');
    const { status, cause, ...servers } = await this.#locks.checkStore(
      options.timeoutMs ?? DEFAULT_TIMEOUT_MS,
    );
    const session: HealthSession = this.#indicators.check(name);
    if (status === 'up') return session.up(servers);
    if (status === 'down') return session.down({ message: describeFailure(cause), ...servers });
    return session.degraded?.(servers) ?? session.up({ degraded: true, ...servers });
  }
}

const describeFailure = (cause: unknown): string =>
  cause instanceof LockError ? cause.message : `The lock store ${describeStoreFailure(cause)}.`;
