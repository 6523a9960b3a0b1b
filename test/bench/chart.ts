import type { BenchName } from './bench.js';
import type { StoreName } from './contender.js';
import type { Line, Results } from './results.js';

/** What one quarter of the chart shows. */
interface Panel {
  readonly title: string;
  readonly bench: BenchName;
  readonly caseName: string;
  readonly store: StoreName;
  readonly figure: string;
  readonly better: 'more' | 'less';
  readonly unit: string;
}

interface Bar {
  readonly label: string;
  readonly kind: Line['kind'];
  readonly value: number;
}

const more = { figure: 'perSecond', better: 'more', unit: ' locks/s' } as const;
const less = { figure: 'totalMs', better: 'less', unit: ' ms' } as const;

const panels: readonly Panel[] = [
  {
    title: 'Redis: 64 callers, each on a key of its own',
    bench: 'B2',
    caseName: '64 callers',
    store: 'redis',
    ...more,
  },
  {
    title: 'PostgreSQL: 64 callers, each on a key of its own',
    bench: 'B2',
    caseName: '64 callers',
    store: 'postgres',
    ...more,
  },
  {
    title: 'Redis: 1,000 callers of one key, until all had it',
    bench: 'B3',
    caseName: '1000 callers',
    store: 'redis',
    ...less,
  },
  {
    title: 'Redis: 4 processes × 25 callers of one key, 1 ms of work',
    bench: 'B4',
    caseName: '4 processes, 25 callers each',
    store: 'redis',
    ...less,
  },
];

const WIDTH = 880;
const PANEL_WIDTH = 430;
const LABEL_WIDTH = 210;
const BAR_WIDTH = 130;
const ROW_HEIGHT = 20;
const TITLE_HEIGHT = 40;
const PANELS_PER_ROW = 2;

const STYLE = `
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.title { font-weight: 600; }
.ours { fill: #d6336c; } .peer { fill: #8c959f; } .floor { fill: #d0d7de; }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .floor { fill: #484f58; } }`;

/** Bars for the README: ours, the peers, each in the profile that suits it best, and the floors. */
export function chart(results: Results): string {
  const filled = panels
    .map((panel) => ({ panel, bars: barsOf(results, panel) }))
    .filter(({ bars }) => bars.length > 0);
  const rows = Math.ceil(filled.length / PANELS_PER_ROW);
  const mostBars = Math.max(...filled.map(({ bars }) => bars.length), 0);
  const panelHeight = TITLE_HEIGHT + mostBars * ROW_HEIGHT + 10;
  const drawn = filled.map(({ panel, bars }, index) => {
    const x = (index % PANELS_PER_ROW) * (WIDTH - PANEL_WIDTH);
    const y = Math.floor(index / PANELS_PER_ROW) * panelHeight;
    return `<g transform="translate(${x} ${y})">\n${drawPanel(panel, bars)}\n</g>`;
  });
  const height = rows * panelHeight;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}">`,
    `<style>${STYLE}\n</style>`,
    ...drawn,
    '</svg>\n',
  ].join('\n');
}

function barsOf(results: Results, { bench, caseName, store, figure, better }: Panel): Bar[] {
  const sign = better === 'more' ? -1 : 1;
  const best = new Map<string, Bar>();
  for (const { contender, kind, profile } of results.lines({ bench, caseName, store })) {
    const value = results.median({ bench, caseName, store, contender, profile, figure });
    if (value === undefined) continue;
    const name = kind === 'ours' ? 'nestjs-distributed-lock' : contender;
    const label = profile === 'tuned' ? `${name}, tuned` : name;
    const known = best.get(contender);
    if (!known || sign * value < sign * known.value) best.set(contender, { label, kind, value });
  }
  return [...best.values()].sort((a, b) => sign * (a.value - b.value));
}

function drawPanel({ title, better, unit }: Panel, bars: readonly Bar[]): string {
  const largest = Math.max(...bars.map(({ value }) => value));
  const rows = bars.map(({ label, kind, value }, index) => {
    const y = TITLE_HEIGHT + index * ROW_HEIGHT;
    const width = Math.max((value / largest) * BAR_WIDTH, 1);
    return [
      `<text x="${LABEL_WIDTH - 8}" y="${y + 10}" text-anchor="end">${escaped(label)}</text>`,
      `<rect class="${kind}" x="${LABEL_WIDTH}" y="${y}" width="${width.toFixed(1)}" height="13" rx="2"/>`,
      `<text x="${(LABEL_WIDTH + width + 6).toFixed(1)}" y="${y + 10}">${amount(value)}${unit}</text>`,
    ].join('\n');
  });
  const heading = `<text class="title" x="0" y="14">${escaped(title)}</text>`;
  const direction = `<text x="0" y="30">${better} is better</text>`;
  return [heading, direction, ...rows].join('\n');
}

const amount = (value: number): string =>
  value.toLocaleString('en', { maximumSignificantDigits: 3, useGrouping: true });

const escaped = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
