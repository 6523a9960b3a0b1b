import { type ArgumentsHost, Catch, type ExceptionFilter, HttpStatus } from '@nestjs/common';
import type { Response } from 'express';
import {
  type LockError,
  LockLostError,
  LockShutdownError,
  LockTimeoutError,
  LockUnavailableError,
} from 'nestjs-distributed-lock';

/**
 * Answers 503 where the lock was not granted: nothing was done, so the customer may try again. And 409 where it was lost,
 * perhaps to somebody who has bought meanwhile. The texts are fixed, as the message of an error names keys and hosts.
 * `LockExceptionFilter` of the package does the same with 409 where a lock was taken; here 409 means sold out.
 */
@Catch(LockTimeoutError, LockUnavailableError, LockShutdownError, LockLostError)
export class LockErrorFilter implements ExceptionFilter {
  catch(error: LockError, host: ArgumentsHost): void {
    const response = host.switchToHttp().getResponse<Response>();
    const isLost = error instanceof LockLostError;
    const statusCode = isLost ? HttpStatus.CONFLICT : HttpStatus.SERVICE_UNAVAILABLE;
    if (!isLost) response.set('Retry-After', '1');
    const message = isLost
      ? 'The order was interrupted. Check it before you try again.'
      : 'Try again in a moment.';
    response.status(statusCode).json({ statusCode, message });
  }
}
