/** What is on sale, and how many there are. */
export const CATALOGUE: Readonly<Record<string, number>> = { teapot: 20, lamp: 20, bicycle: 20, guitar: 5 };

/** What everybody wants at once. */
export const POPULAR_PRODUCTS = ['teapot', 'lamp', 'bicycle'];
export const ORDERS_FOR_EACH = 40;

/** What is being bought at the moment when a replica is killed. */
export const INTERRUPTED = 'guitar';
export const ORDERS_BEHIND = 8;

/** What is dispatched beside the sale, and each how many seconds. */
export const JOBS: Readonly<Record<string, number>> = {
  'send receipts': 1,
  'book payments': 2,
  'fill shelves': 3,
};

export const STOCK = Object.values(CATALOGUE).reduce((sum, count) => sum + count);
