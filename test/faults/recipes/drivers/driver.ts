import type { DynamicModule, INestApplicationContext, Provider, Type } from '@nestjs/common';
import type { LeaderElection } from '../../../../lib/index.js';
import type { CallDetails, Resource } from '../messages.js';

export interface RecipeContext {
  /** All that the block of the document exports. */
  readonly exported: Readonly<Record<string, unknown>>;
  readonly declares: string;
  readonly resource: Resource;
  readonly leaseMs: number;
  readonly elections: readonly string[];
}

/** How a user would call a recipe. */
export interface Driver {
  readonly providers: readonly Provider[];
  readonly imports?: readonly DynamicModule[];
  /** Before the end of the boot, so that an election has a lease of ours. */
  readonly join?: (elections: LeaderElection) => void;
  readonly started?: (app: INestApplicationContext) => Promise<unknown>;
  /** The next call: what it is about, and the call itself. */
  next(app: INestApplicationContext, round: number): Promise<Call> | Call;
  close?(): Promise<void>;
}

export interface Call {
  readonly details: CallDetails;
  make(): Promise<unknown>;
}

/** Looks at the data of a recipe; nothing ever strikes it. */
export interface Observer {
  read(round: number): Promise<unknown>;
  close(): Promise<void>;
}

export const classOf = ({ exported, declares }: RecipeContext) =>
  exported[declares] as Type<Record<string, (...args: unknown[]) => Promise<unknown>>>;
