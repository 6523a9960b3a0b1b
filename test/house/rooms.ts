import { filesIn, importsOf } from './sources.js';

interface Room {
  readonly name: string;
  readonly files: RegExp;
}

const room = (name: string, files = new RegExp(`^${name}`)): Room => ({ name, files });

/** From the top down. A file may import from its own floor and from those below. Rooms of one floor are neighbours. */
export const FLOORS: readonly (readonly Room[])[] = [
  [room('lib/index.ts')],
  [
    room('lib/testing/'),
    room('lib/terminus/'),
    room('lib/opentelemetry/'),
    room('lib/cli/'),
    room('lib/board/'),
  ],
  [room('lib/module/', /^lib\/(distributed-lock\.module\.ts$|module\/)/)],
  [
    room(
      'lib/lock.service.ts',
      /^lib\/(distributed-lock\.options|lock\.service|lock-exception\.filter)\.ts$/,
    ),
  ],
  [room('lib/schedule/')],
  [room('lib/election/')],
  [room('lib/decorators/')],
  [
    room('lib/backends/memory/'),
    room('lib/backends/redis/'),
    room('lib/backends/etcd/'),
    room('lib/backends/zookeeper/'),
    room('lib/backends/typeorm/'),
  ],
  [room('lib/core/')],
];

/** The rooms inside of the lowest floor; files of `lib/core/` itself are the front of the engine and what all of it uses. */
const CORE_ROOMS = ['lib/core/waiting/', 'lib/core/leases/', 'lib/core/requests/'].map((name) => room(name));

const ROOMS = FLOORS.flat();
const CORE = ROOMS.at(-1)!;
const FRONT_OF_CORE = room('lib/core/locks.ts', /^lib\/core\/(locks|job-locks|lock-inspector|engine)\.ts$/);

/** Mermaid's text of the floors: which rooms import from which. Arrows that follow from other arrows are left out. */
export function drawFloors(): string {
  const edges = edgesBetween(ROOMS);
  const drawn = edges.filter((edge) => !isImplied(edge, edges));
  const coreEdges = edgesBetween([FRONT_OF_CORE, ...CORE_ROOMS]);
  return [
    'graph TD',
    ...ROOMS.filter((one) => one !== CORE).map(nodeOf),
    `  subgraph ${idOf(CORE)}["${CORE.name}"]`,
    ...[FRONT_OF_CORE, ...CORE_ROOMS].map((one) => `  ${nodeOf(one)}`),
    ...coreEdges.map((edge) => `  ${arrowOf(edge)}`),
    '  end',
    ...drawn.map(arrowOf),
    '',
  ].join('\n');
}

type Edge = readonly [from: Room, to: Room];

function edgesBetween(rooms: readonly Room[]): Edge[] {
  const imports = filesIn('lib').flatMap(importsOf);
  return rooms.flatMap((from) =>
    rooms
      .filter((to) => to !== from)
      .filter((to) => imports.some((one) => from.files.test(one.from) && to.files.test(one.to)))
      .map((to): Edge => [from, to]),
  );
}

/** Whether a longer way leads from one room to the other. */
function isImplied([from, to]: Edge, edges: readonly Edge[]): boolean {
  const reaches = (start: Room): boolean =>
    start === to || edges.some(([one, other]) => one === start && reaches(other));
  return edges.some(([one, other]) => one === from && other !== to && reaches(other));
}

const idOf = ({ name }: Room) =>
  name
    .replace(/^lib\//, '')
    .replace(/\W+/g, '_')
    .replace(/_$/, '');
const nodeOf = (one: Room) => `  ${idOf(one)}["${one.name}"]`;
const arrowOf = ([from, to]: Edge) => `  ${idOf(from)} --> ${idOf(to)}`;
