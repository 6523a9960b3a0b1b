import { expect, it } from 'vitest';
import { FrameReader } from '../../../../lib/backends/zookeeper/wire/frame-reader.js';
import { JuteReader, JuteWriter } from '../../../../lib/backends/zookeeper/wire/jute.js';

const message = (text: string) => new JuteWriter().text(text).toFrame();
const read = () => {
  const texts: string[] = [];
  return { texts, frames: new FrameReader((frame) => texts.push(new JuteReader(frame).text())) };
};

it('messages are read however they are split', () => {
  const all = Buffer.concat(['one', '', 'three'.repeat(100)].map(message));
  for (const size of [1, 2, 3, 7, 100, all.length]) {
    const { texts, frames } = read();
    for (let at = 0; at < all.length; at += size) expect(frames.add(all.subarray(at, at + size))).toBe(true);
    expect(texts).toEqual(['one', '', 'three'.repeat(100)]);
  }
});

it('what is no message of ZooKeeper is refused', () => {
  // An alert of TLS, and a text.
  expect(read().frames.add(Buffer.from([0x15, 0x03, 0x03, 0x00, 0x02, 0x02]))).toBe(false);
  expect(read().frames.add(Buffer.from('HTTP/1.1 400'))).toBe(false);
  expect(read().frames.add(Buffer.from([0xff, 0xff, 0xff, 0xff]))).toBe(false);
});

it('values are read as they were written', () => {
  const frame = new JuteWriter()
    .int(-7)
    .long(-(2n ** 62n))
    .bool(true)
    .bytes(Buffer.from([1, 2]))
    .text('é😀')
    .toFrame();
  const reader = new JuteReader(frame.subarray(4));
  expect([reader.int(), reader.long(), reader.bool(), [...reader.bytes()], reader.text()]).toEqual([
    ...[-7, -(2n ** 62n), true, [1, 2], 'é😀'],
  ]);
  expect(reader.isAtEnd).toBe(true);
});
