import type { SectionRecord } from '../history.js';

/** Sections under one key that both saw a valid lock at the same instant, with locks of two grants. */
export function overlaps(sections: readonly SectionRecord[]): string[] {
  const valid = sections
    .filter(({ key, validFromMs }) => key !== undefined && validFromMs < Infinity)
    .toSorted((one, other) => one.validFromMs - other.validFromMs);
  const longest = new Map<string, SectionRecord>();
  return valid.flatMap((section) => {
    const before = longest.get(section.key!);
    if (!before || before.validToMs < section.validToMs) longest.set(section.key!, section);
    if (!before || before.validToMs < section.validFromMs || isSameGrant(before, section)) return [];
    const both = [before, section].map(
      ({ path, token, worker }) => `${path} (token ${token}, worker ${worker})`,
    );
    const forMs = Math.min(before.validToMs, section.validToMs) - section.validFromMs;
    return [`two at once under ${section.key}, for ${forMs.toFixed(1)} ms: ${both.join(' and ')}`];
  });
}

const isSameGrant = (one: SectionRecord, other: SectionRecord) =>
  one.token === other.token && one.worker === other.worker;
