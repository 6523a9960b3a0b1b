import { type ArgumentsHost, Catch, type ExceptionFilter, HttpStatus } from '@nestjs/common';
import type { Response } from 'express';
import {
  type LockError,
  LockShutdownError,
  LockTimeoutError,
  LockUnavailableError,
} from 'nestjs-distributed-lock';

/** Answers 503 where the lock was not granted: nothing was done, so the customer may try again. */
@Catch(LockTimeoutError, LockUnavailableError, LockShutdownError)
export class LockErrorFilter implements ExceptionFilter {
  catch({ code, message }: LockError, host: ArgumentsHost): void {
    const response = host.switchToHttp().getResponse<Response>();
    response
      .status(HttpStatus.SERVICE_UNAVAILABLE)
      .set('Retry-After', '1')
      .json({ statusCode: HttpStatus.SERVICE_UNAVAILABLE, code, message });
  }
}
