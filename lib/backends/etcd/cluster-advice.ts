import type { EtcdConnection } from './rpc/etcd-connection.js';

/**
 * The first patch release of each minor version in which a leader that was suspended cannot end leases that its successor has
 * renewed. Later minor versions have the fix from the start.
 *
 * @see https://github.com/etcd-io/etcd/issues/15247
 */
const FIRST_FIXED_PATCHES: ReadonlyMap<number, number> = new Map([
  [4, 31],
  [5, 13],
]);

/** What to change about the cluster, or `undefined`. */
export async function clusterAdvice(
  connection: EtcdConnection,
  timeoutMs: number,
): Promise<string | undefined> {
  const [{ members }, { version }] = await Promise.all([
    connection.call('Cluster.MemberList', {}, timeoutMs),
    // A proxy may not let it through.
    connection.call('Maintenance.Status', {}, timeoutMs).catch(() => ({ version: '' })),
  ]);
  const advice = [
    ...sizeAdvice(members.filter(({ isLearner }) => !isLearner).length),
    ...versionAdvice(version),
  ];
  return advice.length > 0 ? advice.join(' ') : undefined;
}

function sizeAdvice(size: number): readonly string[] {
  if (size % 2 === 1 && size > 1) return [];
  const count = size === 1 ? 'one member' : `${size} members`;
  return [
    `The etcd cluster has ${count}. Use three or five, so that locks can be acquired while one of them is down.`,
  ];
}

/** The advice for a version, like `3.4.23`: none, or one sentence. */
export function versionAdvice(version: string): readonly string[] {
  const [major, minor = 0, patch = 0] = version.split(/[.+-]/).map(Number);
  const fixedPatch = FIRST_FIXED_PATCHES.get(minor);
  if (major !== 3 || fixedPatch === undefined || patch >= fixedPatch) return [];
  return [
    `A leader of etcd ${version} that was suspended can end the leases of locks that are still held, so that two ` +
      'processes hold a lock (etcd issue 15247). Use etcd 3.4.31, 3.5.13 or newer.',
  ];
}
