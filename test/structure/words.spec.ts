import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { ROOT, filesIn } from './sources.js';

/** Words that once stood for what the field has a name for, or for locks as if they were people. See docs/architecture.md. */
const RETIRED =
  /^(askers?|couriers?|errands?|keepers?|holdings|tenants?|tenures?|heirs?|seats?|seated|gatherings?|carriers?|debts?|owes?|owed|owing|hearers?|hears?|heard|told|tells?|telling|he|him|his|whom|greets?|greetings?|twins?|strangers?|voters?|agendas?|forgo|farewells?|crowded|courtesy)$/i;

/** Also the parts of a name in camel case. */
const wordsOf = (text: string) =>
  // The name of a store.
  text.replaceAll('ZooKeeper', '').match(/[A-Z]?[a-z]+|[A-Z]+(?![a-z])/g) ?? [];

it.each(filesIn('lib'))('%s uses the words of the field', (file) => {
  const found = readFileSync(join(ROOT, file), 'utf8')
    .split('\n')
    .flatMap((line, index) =>
      wordsOf(line).some((word) => RETIRED.test(word)) ? [`${index + 1}: ${line.trim()}`] : [],
    );
  expect(found).toEqual([]);
});
