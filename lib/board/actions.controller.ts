import { Controller, Inject, Logger, Post, Req, Res, type Type } from '@nestjs/common';
import { toOneLine } from '../core/format.js';
import { BoardActions } from './board-actions.js';
import { Guarded } from './guarded.js';
import { type BoardRequest, type BoardResponse, requireSameOriginJson, sendText } from './http.js';
import type { ResolvedBoardOptions } from './lock-board.options.js';

/** Creates the controller of what the page may change. */
export function createActionsController(options: ResolvedBoardOptions): Type {
  @Controller(options.path)
  @Guarded(options)
  class LockBoardActionsController {
    readonly logger = new Logger('LockBoardModule');

    constructor(@Inject(BoardActions) readonly actions: BoardActions) {}

    @Post('release')
    release(@Req() request: BoardRequest, @Res() response: BoardResponse): Promise<void> {
      return this.#act(request, response, (body) => this.actions.release(body));
    }

    @Post('run')
    run(@Req() request: BoardRequest, @Res() response: BoardResponse): Promise<void> {
      return this.#act(request, response, (body) => this.actions.run(body));
    }

    @Post('pause')
    pause(@Req() request: BoardRequest, @Res() response: BoardResponse): Promise<void> {
      return this.#act(request, response, (body) => this.actions.setPaused(body, true));
    }

    @Post('resume')
    resume(@Req() request: BoardRequest, @Res() response: BoardResponse): Promise<void> {
      return this.#act(request, response, (body) => this.actions.setPaused(body, false));
    }

    async #act(
      request: BoardRequest,
      response: BoardResponse,
      act: BoardActions['release' | 'run'],
    ): Promise<void> {
      requireSameOriginJson(request);
      const { message, ...result } = await act(request.body);
      this.logger.warn(toOneLine(message));
      sendText(response, 'application/json', JSON.stringify(result));
    }
  }
  return LockBoardActionsController;
}
