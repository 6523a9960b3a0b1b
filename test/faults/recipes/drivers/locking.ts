import { type Driver, type Setting, classOf } from './driver.js';

const ORDERS = 2;

/** Calls each method of the class in turn, for one of a few orders. */
export function lockingDriver(setting: Setting): Driver {
  const recipe = classOf(setting);
  const methods = Object.getOwnPropertyNames(recipe.prototype).filter((name) => name !== 'constructor');
  let calls = Math.floor(Math.random() * methods.length);
  return {
    providers: [recipe],
    next(app) {
      const method = methods[(calls += 1) % methods.length]!;
      const id = calls % ORDERS;
      const order = { id: `${id}`, customer: { id } };
      return { deed: {}, make: () => app.get(recipe)[method]!(order, 'a reason') };
    },
  };
}
