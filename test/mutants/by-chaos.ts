import { readFile, rm } from 'node:fs/promises';
import { type Control, controls } from '../faults/chaos/controls.js';
import { runEpisode } from '../faults/chaos/episode.js';
import { CHECKERS, type Checker } from '../faults/chaos/findings.js';
import { nemeses } from '../faults/chaos/nemesis/nemeses.js';
import { createPlan } from '../faults/chaos/plan.js';
import type { StoreUnderTest } from '../faults/chaos/stores/store-under-test.js';
import { storesUnderTest } from '../faults/chaos/stores/stores-under-test.js';
import { type CompiledCode, applyMutation, compile } from '../support/compiled-code.js';
import type { FaultList } from './fault-list.js';

const ROUNDS = 4;

type Plan = Pick<Control, 'title' | 'backend' | 'nemeses' | 'rounds'>;

/**
 * The controls, each of which a checker of chaos must detect. Without a fault in the code, the same plans must be
 * green, and of all checkers together each must have detected something.
 */
export const byChaos = (seed: number): FaultList<Control> => ({
  faults: controls,
  lanes: 1,
  async open(chosen) {
    const wrong: string[] = [];
    const detecting = new Set<Checker>();
    const episodes = new Episodes(await compile());
    for (const plan of plansOf(chosen)) {
      if ((await episodes.run(plan, seed)).size > 0) wrong.push(`red without a fault: ${plan.title}`);
    }
    return {
      async detect(control) {
        let by: Checker[] = [];
        for (let episode = 0; episode < (control.episodes ?? 1) && by.length === 0; episode += 1) {
          const red = await episodes.run(control, seed + episode, control);
          by = control.seenBy.filter((checker) => red.has(checker));
        }
        for (const checker of by) detecting.add(checker);
        return { isDetected: by.length > 0, text: by.join(', ') };
      },
      async close() {
        await episodes.close();
        const blind = CHECKERS.filter((checker) => !detecting.has(checker));
        const isWhole = chosen.length === controls.length;
        return isWhole && blind.length > 0 ? [...wrong, `detected nothing: ${blind.join(', ')}`] : wrong;
      },
    };
  },
});

/** The plans of these controls, each once. */
function plansOf(chosen: readonly Control[]): Plan[] {
  const plans = chosen.map(({ backend, nemeses: names, rounds = ROUNDS }): [string, Plan] => {
    const title = `no fault, ${rounds} rounds, ${backend}: ${names.join(', ')}`;
    return [title, { title, backend, nemeses: names, rounds }];
  });
  return [...new Map(plans).values()];
}

/** Runs episodes of chaos on stores that stay open between them. */
class Episodes {
  readonly #stores = new Map<string, StoreUnderTest>();
  readonly #code: CompiledCode;

  constructor(code: CompiledCode) {
    this.#code = code;
  }

  /** Returns the checkers that were red, and prints how often. */
  async run(plan: Plan, seed: number, fault?: Control): Promise<ReadonlySet<string>> {
    const startedAtMs = performance.now();
    const source = fault ? await readFile(fault.file, 'utf8') : '';
    if (fault) await this.#code.put(fault.file, applyMutation(source, fault));
    try {
      const red = await this.#redCheckers(plan, seed, fault !== undefined);
      const seconds = ((performance.now() - startedAtMs) / 1_000).toFixed(0);
      const by = [...red].map(([checker, count]) => `${checker} ×${count}`).join(', ');
      console.log(`${seconds.padStart(3)} s  ${plan.title}: ${by || 'all green'}`);
      return new Set(red.keys());
    } finally {
      if (fault) await this.#code.put(fault.file, source);
    }
  }

  async close(): Promise<void> {
    await this.#code.remove();
    for (const store of this.#stores.values()) await store.close();
  }

  /** How often each checker was red. */
  async #redCheckers(plan: Plan, seed: number, hasFault: boolean): Promise<Map<string, number>> {
    const { backend, nemeses: names, rounds = ROUNDS } = plan;
    const store = this.#stores.get(backend) ?? (await storesUnderTest[backend]!({ withClock: false }));
    this.#stores.set(backend, store);
    const chosenNemeses = nemeses.filter(({ name }) => names.some((text) => name.includes(text)));
    const episodePlan = createPlan(seed, store, chosenNemeses, rounds);
    const code = this.#code.folder;
    const { violations, folder } = await runEpisode({ store, seed, plan: episodePlan, code });
    if (folder && hasFault) await rm(folder, { recursive: true });
    else if (folder) console.log(`diaries: ${folder}`);
    const red = new Map<string, number>();
    for (const { checker } of violations) red.set(checker, (red.get(checker) ?? 0) + 1);
    return red;
  }
}
