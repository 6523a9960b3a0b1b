import assert from 'node:assert/strict';
import { MAX_HISTORY_ENTRIES, MAX_HISTORY_ENTRY_LENGTH } from '../../core/backend.js';
import { type Law, TIMEOUT_MS, createAcquisitionId, law, nth } from './law.js';

/** The history of a key, which is for people. */
export const historyLaws: readonly Law[] = [
  law('history entries are returned newest first', async ({ key, open }) => {
    const [ours, theirs] = [open().backend, open().backend];
    assert.deepEqual([...(await ours.readHistory(key, TIMEOUT_MS))], []);
    for (const text of ['one', 'two', '{"three": "\\"3\\" ‚dreiʻ 😀"}', '%s \\ \' "'])
      await ours.appendHistory(key, text, TIMEOUT_MS);
    assert.deepEqual(
      [...(await theirs.readHistory(key, TIMEOUT_MS))],
      ['%s \\ \' "', '{"three": "\\"3\\" ‚dreiʻ 😀"}', 'two', 'one'],
    );
  }),

  law('the newest history entries are kept, however long they are', async ({ key, open }) => {
    const { backend } = open();
    const text = (index: number) => `${index}:`.padEnd(MAX_HISTORY_ENTRY_LENGTH, '…');
    for (let index = 0; index < MAX_HISTORY_ENTRIES + 5; index += 1)
      await backend.appendHistory(key, text(index), TIMEOUT_MS);
    const expected = Array.from({ length: MAX_HISTORY_ENTRIES }, (_, index) =>
      text(MAX_HISTORY_ENTRIES + 4 - index),
    );
    assert.deepEqual([...(await backend.readHistory(key, TIMEOUT_MS))], expected);
  }),

  law('history entries written at the same time are all kept', async ({ key, open }) => {
    const backends = [open().backend, open().backend];
    const texts = Array.from({ length: 20 }, (_, index) => `note ${index}`);
    await Promise.all(texts.map((text, index) => nth(backends, index).appendHistory(key, text, TIMEOUT_MS)));
    const entries = await nth(backends, 0).readHistory(key, TIMEOUT_MS);
    assert.deepEqual([...entries].sort(), texts.sort());
  }),

  law('the history and the lock of a key do not affect each other', async ({ key, open }) => {
    const client = open();
    await client.backend.appendHistory(key, 'before', TIMEOUT_MS);
    assert.equal(await client.inspect(key), null);
    const acquisition = createAcquisitionId(key);
    await client.expectGranted(acquisition);
    await client.backend.appendHistory(key, 'meanwhile', TIMEOUT_MS);
    assert.equal(await client.renew(acquisition), 'renewed');
    assert.equal(await client.release(acquisition), 'released');
    assert.deepEqual([...(await client.backend.readHistory(key, TIMEOUT_MS))], ['meanwhile', 'before']);
  }),
];
