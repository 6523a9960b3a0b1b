import process from 'node:process';

const SHOWN = 15;

/** Jest's reporter: which files took longest, and how long all of them took together. */
export default class Longest {
  onRunComplete(_, { testResults }) {
    const took = testResults.map(({ testFilePath, perfStats }) => ({
      name: testFilePath.replace(`${process.cwd()}/`, ''),
      seconds: (perfStats.end - perfStats.start) / 1_000,
    }));
    if (took.length < SHOWN) return;
    const sum = took.reduce((sofar, { seconds }) => sofar + seconds, 0);
    const lines = took
      .sort((one, other) => other.seconds - one.seconds)
      .slice(0, SHOWN)
      .map(({ name, seconds }) => `${seconds.toFixed(1).padStart(6)} s  ${name}\n`);
    const head = `\nAll ${took.length} files took ${Math.round(sum)} s together. The longest:\n`;
    process.stderr.write(head + lines.join(''));
  }
}
