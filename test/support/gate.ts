/** A point that work passes when a test says so. */
export class Gate {
  readonly passed: Promise<void>;
  open!: () => void;

  constructor() {
    this.passed = new Promise((resolve) => (this.open = resolve));
  }
}
