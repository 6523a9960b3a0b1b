import {
  BadRequestException,
  ConflictException,
  Controller,
  Get,
  Inject,
  Logger,
  Post,
  Req,
  Res,
  ServiceUnavailableException,
  type Type,
  UseGuards,
} from '@nestjs/common';
import { LockConfigError, LockError } from '../core/errors.js';
import { parseFencingToken } from '../core/fence.js';
import { LockService } from '../lock.service.js';
import { BoardFeed } from './board-feed.js';
import { BoardReader } from './board-reader.js';
import { openStream } from './board-stream.js';
import { type BoardRequest, type BoardResponse, requireSameOriginJson, sendText } from './http.js';
import type { ResolvedBoardOptions } from './lock-board.options.js';
import { type PageFiles, renderPage } from './page-files.js';

/** The tokens of what the controllers of one board inject. */
export const PAGE_FILES = Symbol('PageFiles');
export const BOARD_LOCKS = Symbol('LockService of the board');

/** Creates the controllers of one board: their path and guards are known only now. */
export function createControllers(options: ResolvedBoardOptions): Type[] {
  const { actions } = options;
  return actions === 'all'
    ? [createPageController(options), createActionsController(options)]
    : [createPageController(options)];
}

const Guarded = ({ guards }: ResolvedBoardOptions): ClassDecorator =>
  guards === 'none' ? () => undefined : UseGuards(...guards);

function createPageController(options: ResolvedBoardOptions): Type {
  @Controller(options.path)
  @Guarded(options)
  class LockBoardController {
    constructor(
      @Inject(PAGE_FILES) readonly files: PageFiles,
      @Inject(BoardFeed) readonly feed: BoardFeed,
      @Inject(BoardReader) readonly reader: BoardReader,
    ) {}

    @Get()
    page(@Req() request: BoardRequest, @Res() response: BoardResponse): void {
      const html = renderPage(this.files.html, request.originalUrl ?? request.url);
      sendText(response, 'text/html', html);
    }

    @Get('board.js')
    script(@Res() response: BoardResponse): void {
      sendText(response, 'text/javascript', this.files.script);
    }

    @Get('board.css')
    style(@Res() response: BoardResponse): void {
      sendText(response, 'text/css', this.files.style);
    }

    @Get('board.svg')
    icon(@Res() response: BoardResponse): void {
      sendText(response, 'image/svg+xml', this.files.icon);
    }

    @Get('stream')
    stream(@Req() { method, query }: BoardRequest, @Res() response: BoardResponse): void {
      if (method === 'HEAD') {
        sendText(response, 'text/event-stream', '');
        return;
      }
      if (this.feed.isClosed) throw new ServiceUnavailableException('The application is shutting down.');
      const about = { ...this.reader.source, actions: options.actions };
      openStream(response, { feed: this.feed, view: viewOf(query), about });
    }
  }
  return LockBoardController;
}

const viewOf = ({ prefix, cursor }: BoardRequest['query']) => ({
  prefix: textOr('', prefix),
  cursor: textOr(undefined, cursor),
});

const textOr = <Default>(other: Default, value: unknown): string | Default =>
  typeof value === 'string' && value !== '' ? value : other;

function createActionsController(options: ResolvedBoardOptions): Type {
  @Controller(options.path)
  @Guarded(options)
  class LockBoardActionsController {
    readonly logger = new Logger('LockBoardModule');

    constructor(@Inject(BOARD_LOCKS) readonly locks: LockService) {}

    @Post('release')
    async release(@Req() request: BoardRequest, @Res() response: BoardResponse): Promise<void> {
      requireSameOriginJson(request);
      const { key, fencingToken } = readGrant(request.body);
      if (!(await this.#release(key, fencingToken)))
        throw new ConflictException('This grant no longer holds the key.');
      this.logger.warn(`Released the lock ${JSON.stringify(key)} of token ${fencingToken} by force.`);
      sendText(response, 'application/json', JSON.stringify({ released: true }));
    }

    async #release(key: string, fencingToken: bigint): Promise<boolean> {
      try {
        return await this.locks.forceRelease(key, { fencingToken });
      } catch (error) {
        if (error instanceof LockConfigError) throw new BadRequestException('Expected the key of a lock.');
        if (!(error instanceof LockError)) throw error;
        throw new ServiceUnavailableException('The lock was not released: try again.', {
          cause: error,
        });
      }
    }
  }
  return LockBoardActionsController;
}

/** @throws BadRequestException */
function readGrant(body: unknown): { key: string; fencingToken: bigint } {
  const given = Object(body) as { key?: unknown; fencingToken?: unknown };
  const { key } = given;
  const fencingToken = parseFencingToken(given.fencingToken);
  if (typeof key === 'string' && fencingToken !== undefined) return { key, fencingToken };
  throw new BadRequestException('Expected { key, fencingToken }, both as texts.');
}
