import { UseGuards } from '@nestjs/common';
import type { ResolvedBoardOptions } from './lock-board.options.js';

/** Puts the guards of the board on a controller. */
export const Guarded = ({ guards }: ResolvedBoardOptions): ClassDecorator =>
  guards === 'none' ? () => undefined : UseGuards(...guards);
