import assert from 'node:assert/strict';
import { LONGEST_NOTE, MOST_NOTES } from '../../core/backend.js';
import { LIMIT_MS, type Law, law, nth, somebody } from './law.js';

/** What is noted for people about a key. */
export const noteLaws: readonly Law[] = [
  law('notes come back newest first', async ({ key, open }) => {
    const [ours, theirs] = [open().backend, open().backend];
    assert.deepEqual([...(await ours.notes(key, LIMIT_MS))], []);
    for (const text of ['one', 'two', '{"three": "\\"3\\" ‚dreiʻ 😀"}', '%s \\ \' "'])
      await ours.note(key, text, LIMIT_MS);
    assert.deepEqual(
      [...(await theirs.notes(key, LIMIT_MS))],
      ['%s \\ \' "', '{"three": "\\"3\\" ‚dreiʻ 😀"}', 'two', 'one'],
    );
  }),

  law('the newest notes are kept, however long they are', async ({ key, open }) => {
    const { backend } = open();
    const text = (index: number) => `${index}:`.padEnd(LONGEST_NOTE, '…');
    for (let index = 0; index < MOST_NOTES + 5; index += 1) await backend.note(key, text(index), LIMIT_MS);
    const expected = Array.from({ length: MOST_NOTES }, (_, index) => text(MOST_NOTES + 4 - index));
    assert.deepEqual([...(await backend.notes(key, LIMIT_MS))], expected);
  }),

  law('of notes written at once none is lost', async ({ key, open }) => {
    const backends = [open().backend, open().backend];
    const texts = Array.from({ length: 20 }, (_, index) => `note ${index}`);
    await Promise.all(texts.map((text, index) => nth(backends, index).note(key, text, LIMIT_MS)));
    const notes = await nth(backends, 0).notes(key, LIMIT_MS);
    assert.deepEqual([...notes].sort(), texts.sort());
  }),

  law('notes and the lock of a key leave each other alone', async ({ key, open }) => {
    const asking = open();
    await asking.backend.note(key, 'before', LIMIT_MS);
    assert.equal(await asking.inspect(key), null);
    const claim = somebody(key);
    await asking.take(claim);
    await asking.backend.note(key, 'meanwhile', LIMIT_MS);
    assert.equal(await asking.renew(claim), 'renewed');
    assert.equal(await asking.release(claim), 'released');
    assert.deepEqual([...(await asking.backend.notes(key, LIMIT_MS))], ['meanwhile', 'before']);
  }),
];
