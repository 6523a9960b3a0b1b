import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import type * as Etcd from '../../lib/backends/etcd/index.js';
import type * as Memory from '../../lib/backends/memory/index.js';
import type * as Redis from '../../lib/backends/redis/index.js';
import type * as Typeorm from '../../lib/backends/typeorm/index.js';
import type * as Zookeeper from '../../lib/backends/zookeeper/index.js';
import type * as Events from '../../lib/core/events.js';
import type * as Locks from '../../lib/core/locks.js';
import type * as Index from '../../lib/index.js';
import type * as OpenTelemetry from '../../lib/opentelemetry/index.js';

interface Modules {
  readonly 'index.js': typeof Index;
  readonly 'backends/etcd/index.js': typeof Etcd;
  readonly 'backends/memory/index.js': typeof Memory;
  readonly 'backends/redis/index.js': typeof Redis;
  readonly 'backends/typeorm/index.js': typeof Typeorm;
  readonly 'backends/zookeeper/index.js': typeof Zookeeper;
  readonly 'core/events.js': typeof Events;
  readonly 'core/locks.js': typeof Locks;
  readonly 'opentelemetry/index.js': typeof OpenTelemetry;
}

/** `dist/lib` of another build, such as that of an earlier commit, which is measured as well. */
const folderBefore = process.env['BENCH_BEFORE'];
export const hasBuildBefore = folderBefore !== undefined;

let builtFiles = new URL('../../dist/lib/', import.meta.url);

/** From now on, {@link importBuilt} takes the earlier build. A process measures one contender. */
export function useBuildBefore(): void {
  builtFiles = pathToFileURL(`${resolve(folderBefore!)}/`);
}

/** What users run is what is measured: a module of the built package. */
export const importBuilt = async <Path extends keyof Modules>(path: Path): Promise<Modules[Path]> =>
  (await import(new URL(path, builtFiles).href)) as Modules[Path];
