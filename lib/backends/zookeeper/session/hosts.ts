import type { HostAddress } from '../wire/connection-types.js';

/** The servers of the ensemble, of which one is used at a time. All sessions of a backend share it. */
export class Hosts {
  readonly #hosts: readonly HostAddress[];
  #index = 0;

  constructor(hosts: readonly HostAddress[]) {
    this.#hosts = hosts;
  }

  get count(): number {
    return this.#hosts.length;
  }

  get current(): HostAddress {
    return this.#hosts[this.#index % this.#hosts.length] as HostAddress;
  }

  /** For messages. */
  get currentName(): string {
    const { host, port } = this.current;
    return `${host}:${port}`;
  }

  /** The present one does not answer, or does not serve. */
  leave(): void {
    this.#index += 1;
  }
}
