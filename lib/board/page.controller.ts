import { Controller, Get, Inject, Req, Res, ServiceUnavailableException, type Type } from '@nestjs/common';
import { BoardFeed } from './board-feed.js';
import { BoardReader } from './board-reader.js';
import { openStream } from './board-stream.js';
import { Guarded } from './guarded.js';
import { type BoardRequest, type BoardResponse, refuseOtherSites, sendText } from './http.js';
import type { ResolvedBoardOptions } from './lock-board.options.js';
import { type PageFiles, renderPage } from './page-files.js';

/** The token of what the page consists of. */
export const PAGE_FILES = Symbol('PageFiles');

/** Creates the controller of one board: its path and guards are known only now. */
export function createPageController(options: ResolvedBoardOptions): Type {
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
    stream(@Req() request: BoardRequest, @Res() response: BoardResponse): void {
      refuseOtherSites(request);
      if (request.method === 'HEAD') {
        sendText(response, 'text/event-stream', '');
        return;
      }
      if (this.feed.isClosed) throw new ServiceUnavailableException('The application is shutting down.');
      const about = { ...this.reader.source, actions: options.actions };
      openStream(response, { feed: this.feed, view: viewOf(request.query), about });
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
