import { describe, expect, it } from 'vitest';
import { LAYERS } from './layers.js';
import { filesIn, importsOf } from './sources.js';

const PACKAGES: [place: RegExp, allowed: RegExp][] = [
  [/^lib\/core\//, /^node:/],
  [/^lib\/backends\/memory\//, /^node:/],
  [/^lib\/backends\/redis\//, /^(node:.*|ioredis)$/],
  [/^lib\/backends\/etcd\//, /^(node:.*|@grpc\/(grpc-js|proto-loader))$/],
  [/^lib\/backends\/zookeeper\//, /^node:/],
  [/^lib\/backends\/typeorm\//, /^(node:.*|typeorm)$/],
  [/^lib\/board\//, /^(node:.*|@nestjs\/common)$/],
  [/^lib\/decorators\//, /^(node:.*|@nestjs\/(common|core))$/],
  [/^lib\/election\//, /^(node:.*|@nestjs\/(common|core))$/],
  [/^lib\/schedule\//, /^(node:.*|cron|@nestjs\/(common|core|schedule))$/],
  [/^lib\/opentelemetry\//, /^(node:.*|@opentelemetry\/api)$/],
  [/^lib\/cli\//, /^(node:.*|ioredis|reflect-metadata|@nestjs\/core)$/],
  [/^lib\/terminus\//, /^@nestjs\/(common|terminus)$/],
  [/^lib\/testing\//, /^(node:.*|@nestjs\/common)$/],
  [/^lib\/(module\/)?[^/]+\.ts$/, /^(node:.*|@nestjs\/(common|core|schedule))$/],
];

const imports = filesIn('lib').flatMap(importsOf);
const layerOf = (file: string) => LAYERS.findIndex((parts) => parts.some(({ files }) => files.test(file)));
const shown = (found: typeof imports) => found.map(({ from, to }) => `${from} -> ${to}`);

describe('in lib', () => {
  it('every file has a layer', () => {
    expect(filesIn('lib').filter((file) => layerOf(file) === -1)).toEqual([]);
  });

  it('imports point down', () => {
    expect(shown(imports.filter(({ from, to, isOurs }) => isOurs && layerOf(to) < layerOf(from)))).toEqual(
      [],
    );
  });

  it('backends do not know each other', () => {
    const backend = (file: string) => /^lib\/backends\/(\w+)\//.exec(file)?.[1];
    const crossing = imports.filter(
      ({ from, to }) => backend(from) && backend(to) && backend(from) !== backend(to),
    );
    expect(shown(crossing)).toEqual([]);
  });

  it('nobody imports an index', () => {
    expect(shown(imports.filter(({ to, isOurs }) => isOurs && to.endsWith('index.ts')))).toEqual([]);
  });

  it('each place knows only its own packages', () => {
    const foreign = imports.filter(({ from, to, isOurs }) => {
      const allowed = PACKAGES.find(([place]) => place.test(from))?.[1];
      return !isOurs && !allowed?.test(to);
    });
    expect(shown(foreign)).toEqual([]);
  });

  it('imports go in no circle', () => {
    const from = (file: string) => imports.filter((one) => one.isOurs && one.from === file);
    const done = new Set<string>();
    const visit = (file: string, path: readonly string[]): void => {
      expect(path).not.toContain(file);
      if (done.has(file)) return;
      done.add(file);
      for (const { to } of from(file)) visit(to, [...path, file]);
    };
    for (const file of filesIn('lib')) visit(file, []);
  });
});
