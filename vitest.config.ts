import { configDefaults, defineConfig } from 'vitest/config';
import { SlowestFilesReporter } from './test/support/vitest/slowest-files-reporter.js';

/** They replace globals before the library is loaded, load it twice, or set what a process has once. */
const ISOLATED = [
  'test/nest/fake-timers-first.spec.ts',
  'test/nest/no-set-immediate.spec.ts',
  'test/simulation/simulation.spec.ts',
  'test/nest/testing-copies.spec.ts',
  'test/resource/transactional-cls-hooked.spec.ts',
];

/** Several processes each, and servers that stop: most of the time of all specs. */
const CLUSTER = 'test/cluster/**/*.spec.ts';

const MODELS = 'test/models/models.spec.ts';

export default defineConfig({
  plugins: [
    {
      name: 'commonjs-source',
      // Vite loads every file as an ES module.
      transform: {
        order: 'pre',
        filter: { id: /\.cts$/ },
        handler: (code) => code.replace('export =', 'export default'),
      },
    },
  ],
  test: {
    globalSetup: 'test/support/vitest/global-setup.ts',
    setupFiles: 'test/support/vitest/no-inversions.ts',
    reporters: ['default', new SlowestFilesReporter()],
    // More than the machine has cores, since the specs mostly wait.
    maxWorkers: 4,
    maxConcurrency: 3,
    testTimeout: 30_000,
    hookTimeout: 30_000,
    restoreMocks: true,
    unstubEnvs: true,
    projects: [
      // Loading TypeORM, Nest and the library anew for each file would take half of the time.
      {
        extends: true,
        test: {
          name: 'shared',
          include: ['test/**/*.spec.ts'],
          exclude: [...configDefaults.exclude, '**/dist/**', ...ISOLATED, CLUSTER, MODELS],
          isolate: false,
        },
      },
      { extends: true, test: { name: 'isolated', include: ISOLATED, isolate: true } },
      // `npm run test:cluster`.
      { extends: true, test: { name: 'cluster', include: [CLUSTER], isolate: false } },
      // Not part of `npm test`: no code of the library is in them.
      { extends: true, test: { name: 'models', include: [MODELS] } },
    ],
  },
});
