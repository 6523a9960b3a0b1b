/** What one server of a quorum keeps of a lock, in part; for its columns see the script. */
export function voteFrom(text: string) {
  const column = (from: number, to: number) => Number(text.slice(from, to));
  const isHeld = text[102] !== '-';
  const untilUs = isHeld ? column(68, 84) + column(85, 101) : 0;
  return { holder: isHeld ? text.slice(121).split(' ')[0] : undefined, untilUs };
}

/** Until when somebody waits for the lock; 0 if nobody does. */
export const waitsUntilUs = (text: string) => Number(text.slice(104, 120));
