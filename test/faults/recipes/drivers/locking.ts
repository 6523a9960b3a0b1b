import { type Driver, type RecipeContext, classOf } from './driver.js';

const ORDERS = 2;

/** Calls each method of the class in turn, for one of a few orders. */
export function lockingDriver(context: RecipeContext): Driver {
  const recipe = classOf(context);
  const methods = Object.getOwnPropertyNames(recipe.prototype).filter((name) => name !== 'constructor');
  let calls = Math.floor(Math.random() * methods.length);
  return {
    providers: [recipe],
    next(app) {
      const method = methods[(calls += 1) % methods.length]!;
      const id = calls % ORDERS;
      const order = { id: `${id}`, customer: { id } };
      return { details: {}, make: () => app.get(recipe)[method]!(order, 'a reason') };
    },
  };
}
