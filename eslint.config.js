import js from '@eslint/js';
import prettier from 'eslint-config-prettier';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['**/dist/', 'node_modules/', '**/node_modules/', 'coverage/'] },
  js.configs.recommended,
  tseslint.configs.strictTypeChecked,
  {
    languageOptions: {
      parserOptions: {
        projectService: { allowDefaultProject: ['*.js'] },
        tsconfigRootDir: import.meta.dirname,
      },
    },
    rules: {
      '@typescript-eslint/restrict-template-expressions': [
        'error',
        { allowNumber: true, allowBoolean: true },
      ],
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      // Nest modules are classes with nothing but a decorator.
      '@typescript-eslint/no-extraneous-class': ['error', { allowWithDecorator: true }],
      '@typescript-eslint/unbound-method': 'off',
      // Options are plain objects, also where a library declares them as classes.
      '@typescript-eslint/no-unsafe-class-instance-assignment': 'off',
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_' }],
      '@typescript-eslint/consistent-type-imports': ['error', { fixStyle: 'inline-type-imports' }],
    },
  },
  {
    files: ['lib/**'],
    ignores: ['lib/core/real-timers.ts', 'lib/testing/laws/**', 'lib/board/page/**'],
    rules: {
      // Fake timers replace these: import them from core/real-timers.ts.
      'no-restricted-globals': [
        'error',
        ...['setTimeout', 'setInterval', 'setImmediate', 'clearTimeout', 'clearInterval'],
        ...['queueMicrotask', 'performance'],
      ],
      'no-restricted-properties': ['error', { object: 'Date', property: 'now' }],
      'no-restricted-imports': ['error', 'node:timers', 'node:timers/promises'],
    },
  },
  {
    files: ['test/**'],
    rules: {
      // Specs decorate methods that have nothing to await, and know that what they index is there.
      '@typescript-eslint/require-await': 'off',
      '@typescript-eslint/no-non-null-assertion': 'off',
      '@typescript-eslint/no-empty-function': 'off',
      // Vitest declares `expect.any()` and the like as `any`.
      '@typescript-eslint/no-unsafe-assignment': 'off',
    },
  },
  { files: ['**/*.js'], ...tseslint.configs.disableTypeChecked },
  {
    // A module for browsers.
    files: ['lib/board/page/*.js'],
    languageOptions: {
      globals: Object.fromEntries(
        [
          ...['document', 'location', 'history', 'addEventListener', 'fetch', 'AbortController', 'URL'],
          ...['URLSearchParams', 'TextDecoderStream', 'setTimeout', 'clearTimeout'],
        ].map((name) => [name, 'readonly']),
      ),
    },
  },
  prettier,
);
