import { execa } from 'execa';
import type { ServerUser } from './server-home.js';

/** The user for servers that refuse to run as root; everybody else runs them as himself. */
export async function unprivilegedUser(): Promise<ServerUser | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const { failed: isUnknown } = await execa('id', ['postgres'], { reject: false });
  const name = isUnknown ? 'nobody' : 'postgres';
  const id = async (option: string) => Number((await execa('id', [option, name])).stdout);
  return { uid: await id('-u'), gid: await id('-g') };
}
