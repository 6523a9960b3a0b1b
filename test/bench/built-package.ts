import type * as Memory from '../../lib/backends/memory/index.js';
import type * as Redis from '../../lib/backends/redis/index.js';
import type * as Typeorm from '../../lib/backends/typeorm/index.js';
import type * as Events from '../../lib/core/events.js';
import type * as Locks from '../../lib/core/locks.js';
import type * as Index from '../../lib/index.js';

interface Modules {
  readonly 'index.js': typeof Index;
  readonly 'backends/memory/index.js': typeof Memory;
  readonly 'backends/redis/index.js': typeof Redis;
  readonly 'backends/typeorm/index.js': typeof Typeorm;
  readonly 'core/events.js': typeof Events;
  readonly 'core/locks.js': typeof Locks;
}

/** What users run is what is measured: a module of the built package. */
export const importBuilt = async <Path extends keyof Modules>(path: Path): Promise<Modules[Path]> =>
  (await import(new URL(`../../dist/lib/${path}`, import.meta.url).href)) as Modules[Path];
