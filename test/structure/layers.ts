import { filesIn, importsOf } from './sources.js';

interface Part {
  readonly name: string;
  readonly files: RegExp;
}

const part = (name: string, files = new RegExp(`^${name}`)): Part => ({ name, files });

/** From the top down. A file may import from its own layer and from those below. Parts of one layer are neighbours. */
export const LAYERS: readonly (readonly Part[])[] = [
  [part('lib/index.ts')],
  [
    part('lib/testing/'),
    part('lib/terminus/'),
    part('lib/opentelemetry/'),
    part('lib/cli/'),
    part('lib/board/'),
  ],
  [part('lib/module/', /^lib\/(distributed-lock\.module\.ts$|module\/)/)],
  [
    part(
      'lib/lock.service.ts',
      /^lib\/(distributed-lock\.options|lock\.service|lock-exception\.filter)\.ts$/,
    ),
  ],
  [part('lib/schedule/')],
  [part('lib/election/')],
  [part('lib/decorators/')],
  [
    part('lib/backends/memory/'),
    part('lib/backends/redis/'),
    part('lib/backends/etcd/'),
    part('lib/backends/zookeeper/'),
    part('lib/backends/typeorm/'),
  ],
  [part('lib/core/')],
];

/** The parts inside of the lowest layer; files of `lib/core/` itself are the front of the engine and what all of it uses. */
const CORE_PARTS = ['lib/core/waiting/', 'lib/core/leases/', 'lib/core/requests/'].map((name) => part(name));

const PARTS = LAYERS.flat();
const CORE = PARTS.at(-1)!;
const FRONT_OF_CORE = part('lib/core/locks.ts', /^lib\/core\/(locks|job-locks|lock-inspector|engine)\.ts$/);

/** Mermaid's text of the layers: which parts import from which. Arrows that follow from other arrows are left out. */
export function drawLayers(): string {
  const edges = edgesBetween(PARTS);
  const drawn = edges.filter((edge) => !isImplied(edge, edges));
  const coreEdges = edgesBetween([FRONT_OF_CORE, ...CORE_PARTS]);
  return [
    'graph TD',
    ...PARTS.filter((one) => one !== CORE).map(nodeOf),
    `  subgraph ${idOf(CORE)}["${CORE.name}"]`,
    ...[FRONT_OF_CORE, ...CORE_PARTS].map((one) => `  ${nodeOf(one)}`),
    ...coreEdges.map((edge) => `  ${arrowOf(edge)}`),
    '  end',
    ...drawn.map(arrowOf),
    '',
  ].join('\n');
}

type Edge = readonly [from: Part, to: Part];

function edgesBetween(parts: readonly Part[]): Edge[] {
  const imports = filesIn('lib').flatMap(importsOf);
  return parts.flatMap((from) =>
    parts
      .filter((to) => to !== from)
      .filter((to) => imports.some((one) => from.files.test(one.from) && to.files.test(one.to)))
      .map((to): Edge => [from, to]),
  );
}

/** Whether a longer way leads from one part to the other. */
function isImplied([from, to]: Edge, edges: readonly Edge[]): boolean {
  const reaches = (start: Part): boolean =>
    start === to || edges.some(([one, other]) => one === start && reaches(other));
  return edges.some(([one, other]) => one === from && other !== to && reaches(other));
}

const idOf = ({ name }: Part) =>
  name
    .replace(/^lib\//, '')
    .replace(/\W+/g, '_')
    .replace(/_$/, '');
const nodeOf = (one: Part) => `  ${idOf(one)}["${one.name}"]`;
const arrowOf = ([from, to]: Edge) => `  ${idOf(from)} --> ${idOf(to)}`;
