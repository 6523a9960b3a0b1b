/** Something that took effect at one moment between its call and its return. */
export interface Operation<Input> {
  readonly callMs: number;
  /** `Infinity`: it may have taken effect later, or never. */
  readonly returnMs: number;
  readonly input: Input;
}

/** What a correct thing does, one operation after the other. */
export interface Model<State, Input> {
  readonly initial: State;
  /** The state after it; undefined if it cannot happen in this state. */
  step(state: State, input: Input): State | undefined;
  /** The same text for the same state. */
  nameOf(state: State): string;
}

interface Event<Input> {
  readonly atMs: number;
  /** Bit of the operation. */
  readonly bit: bigint;
  readonly operation: Operation<Input>;
  /** Of a call: its return, if there was one. */
  readonly end: Event<Input> | undefined;
  readonly isCall: boolean;
  before: Event<Input> | undefined;
  after: Event<Input> | undefined;
}

/**
 * Whether the operations can be put in an order that the model allows and that agrees with the clock. It is the search of
 * Wing and Gong, with the memory of Lowe: what has been tried once (the same operations done, the same state) is not tried
 * again. Source: Lowe, "Testing for linearizability", 2017.
 */
export function isLinearizable<State, Input>(
  operations: readonly Operation<Input>[],
  model: Model<State, Input>,
): boolean {
  const start = eventsOf(operations);
  const tried = new Set<string>();
  const path: { readonly call: Event<Input>; readonly state: State }[] = [];
  let { state, done } = { state: model.initial, done: 0n };
  let open = operations.filter(({ returnMs }) => returnMs < Infinity).length;
  let event = start.after;
  while (open > 0) {
    if (event?.isCall) {
      const next = model.step(state, event.operation.input);
      const memory = next === undefined ? '' : `${(done | event.bit).toString(36)} ${model.nameOf(next)}`;
      if (next === undefined || tried.has(memory)) {
        event = event.after;
        continue;
      }
      tried.add(memory);
      path.push({ call: event, state });
      state = next;
      done |= event.bit;
      if (event.end) open -= 1;
      unlinkEvents(event);
      event = start.after;
    } else {
      // Something has returned that has not happened yet: the last step was wrong.
      const last = path.pop();
      if (!last) return false;
      state = last.state;
      done &= ~last.call.bit;
      if (last.call.end) open += 1;
      relinkEvents(last.call);
      event = last.call.after;
    }
  }
  return true;
}

/** All calls and returns in the order of time, behind an event that stands for the beginning. */
function eventsOf<Input>(operations: readonly Operation<Input>[]): Pick<Event<Input>, 'after'> {
  const events = operations.flatMap((operation, index): Event<Input>[] => {
    const common = { bit: 1n << BigInt(index), operation, before: undefined, after: undefined };
    const { callMs, returnMs } = operation;
    const end =
      returnMs < Infinity ? { ...common, atMs: returnMs, end: undefined, isCall: false } : undefined;
    const call = { ...common, atMs: callMs, end, isCall: true };
    return end ? [call, end] : [call];
  });
  // At the same moment, calls come first: the operations may have overlapped.
  events.sort((one, other) => one.atMs - other.atMs || Number(other.isCall) - Number(one.isCall));
  const start = { after: events[0] };
  for (const [index, event] of events.entries()) {
    event.before = index === 0 ? (start as Event<Input>) : events[index - 1];
    event.after = events[index + 1];
  }
  return start;
}

function unlinkEvents<Input>(call: Event<Input>): void {
  for (const event of [call, call.end]) {
    if (!event) continue;
    if (event.before) event.before.after = event.after;
    if (event.after) event.after.before = event.before;
  }
}

/** In the opposite order, so that each finds its neighbours as it left them. */
function relinkEvents<Input>(call: Event<Input>): void {
  for (const event of [call.end, call]) {
    if (!event) continue;
    if (event.before) event.before.after = event;
    if (event.after) event.after.before = event;
  }
}
