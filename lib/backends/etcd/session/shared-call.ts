/** A call to etcd that all who need it at the same time share. Each of them waits at most for its own time. */
export class SharedCall {
  readonly #start: (timeoutMs: number) => Promise<void>;
  #running: Promise<void> | undefined;

  constructor(start: (timeoutMs: number) => Promise<void>) {
    this.#start = start;
  }

  run(timeoutMs: number): Promise<void> {
    this.#running ??= this.#start(timeoutMs).finally(() => (this.#running = undefined));
    return this.#running;
  }
}
