import { type ArgumentsHost, Catch, type ExceptionFilter, HttpStatus } from '@nestjs/common';
import {
  type LockError,
  LockLostError,
  LockShutdownError,
  LockTimeoutError,
  LockUnavailableError,
} from './core/errors.js';

/** The part of a gateway's client that Nest's own filter uses. */
interface WsClient {
  emit?(event: 'exception', message: object): unknown;
}

/** What the responses of Express and Fastify have in common. */
interface HttpResponse {
  readonly headersSent?: boolean;
  readonly raw?: { readonly headersSent: boolean; end(): void };
  header(name: string, value: string): unknown;
  status(code: number): unknown;
  send(body: object): unknown;
  end?(): void;
}

interface ErrorResponse {
  readonly statusCode: HttpStatus;
  readonly error: string;
  readonly message: string;
  readonly retryAfter?: string;
}

const BUSY: ErrorResponse = {
  statusCode: HttpStatus.CONFLICT,
  error: 'Conflict',
  message: 'Another request is working on this. Try again later.',
  retryAfter: '1',
};

const INTERRUPTED: ErrorResponse = {
  statusCode: HttpStatus.CONFLICT,
  error: 'Conflict',
  message: 'The request was interrupted. Check its effect before you try again.',
};

const UNAVAILABLE: ErrorResponse = {
  statusCode: HttpStatus.SERVICE_UNAVAILABLE,
  error: 'Service Unavailable',
  message: 'The service is not available. Try again later.',
  retryAfter: '1',
};

/**
 * Turns lock errors into HTTP responses with fixed texts, so that no key, host or message of a store reaches a client:
 * 409 for `LockTimeoutError` and `LockLostError`, 503 for `LockUnavailableError` and `LockShutdownError`. All responses
 * have `Retry-After`, except that of `LockLostError`, because part of the work may be done by then.
 *
 * Works on Express and Fastify with `useGlobalFilters(new LockExceptionFilter())`, `APP_FILTER` or `@UseFilters`. On a
 * WebSocket gateway it emits `exception` with the same texts, as Nest does for its own exceptions. Nest handles errors
 * in other contexts. It also handles `LockReentryError` and `LockConfigError`, which are bugs, with 500.
 */
@Catch(LockTimeoutError, LockLostError, LockUnavailableError, LockShutdownError)
export class LockExceptionFilter implements ExceptionFilter<LockError> {
  catch(error: LockError, host: ArgumentsHost): void {
    // On a gateway, Nest sends nothing itself once a filter was called.
    if (host.getType() === 'ws') {
      const { message } = toErrorResponse(error);
      host.switchToWs().getClient<WsClient>().emit?.('exception', { status: 'error', message });
    }
    if (host.getType() !== 'http') return;
    const response = host.switchToHttp().getResponse<HttpResponse>();
    const { headersSent, end } = response.raw ?? response;
    if (headersSent) {
      end?.call(response.raw ?? response);
      return;
    }
    const { retryAfter, ...body } = toErrorResponse(error);
    if (retryAfter !== undefined) response.header('Retry-After', retryAfter);
    response.status(body.statusCode);
    response.send(body);
  }
}

function toErrorResponse(error: LockError): ErrorResponse {
  if (error instanceof LockTimeoutError) return BUSY;
  return error instanceof LockLostError ? INTERRUPTED : UNAVAILABLE;
}
