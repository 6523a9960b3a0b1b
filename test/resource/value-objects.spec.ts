import { describe, expect, it } from 'vitest';
import {
  Column,
  type DataSource,
  Entity,
  JoinColumn,
  ManyToOne,
  OneToOne,
  PrimaryColumn,
  VersionColumn,
} from 'typeorm';
import {
  FencingToken,
  claimRow,
  fencedFindOne,
  fencedUpdate,
  optimisticUpdate,
  withRowLock,
} from '../../lib/backends/typeorm/index.js';
import { LockConfigError } from '../../lib/core/errors.js';
import { databases, tablesOn } from './databases.js';

/** A value that shows nothing of itself but a field that is not set. */
class InvoiceId {
  readonly #text: string;
  checkDigit?: number;

  constructor(text: string) {
    this.#text = text;
  }

  toString(): string {
    return this.#text;
  }
}

@Entity()
class Invoice {
  @PrimaryColumn({
    type: 'varchar',
    length: 10,
    transformer: { to: String, from: (text: string) => new InvoiceId(text) },
  })
  id!: InvoiceId;

  @ManyToOne(() => Invoice, { createForeignKeyConstraints: false })
  corrects!: Invoice | null;

  @Column({ type: 'varchar', length: 10, default: 'OPEN' })
  state!: string;

  @VersionColumn()
  version!: number;

  @FencingToken()
  fencingToken?: bigint;
}

/** A row whose id is that of another row. */
@Entity()
class Receipt {
  @OneToOne(() => Invoice, { createForeignKeyConstraints: false })
  @JoinColumn()
  @PrimaryColumn({ type: 'varchar', length: 10 })
  invoice!: Invoice;

  @FencingToken()
  fencingToken?: bigint;
}

/** A row to which the database has not given an id yet. */
class Unsaved {
  readonly id = undefined;
}

const pay = (invoice: Invoice) => void (invoice.state = 'PAID');

const helpers: [string, (database: DataSource, where: object) => Promise<unknown>][] = [
  ['fencedFindOne', (database, where) => fencedFindOne(database, Invoice, where, 5n)],
  ['fencedUpdate', (database, where) => fencedUpdate(database, Invoice, where, { state: 'PAID' }, 5n)],
  ['optimisticUpdate', (database, where) => optimisticUpdate(database, Invoice, where, pay)],
  ['withRowLock', (database, where) => withRowLock(database, Invoice, where, () => true)],
  [
    'claimRow',
    (database, where) =>
      claimRow(database, Invoice, { from: { ...where, state: 'OPEN' }, to: { state: 'PAID' } }),
  ],
];

describe.each(databases)('a value object as an id, on %s', (_, storeOf) => {
  let database: DataSource;
  let count = 0;
  tablesOn(storeOf, [Invoice, Receipt], (opened) => (database = opened));
  const newInvoice = async () => {
    const id = new InvoiceId(`I-${(count += 1)}`);
    await database.manager.insert(Invoice, { id });
    return id;
  };

  it.each(helpers)('names the row for %s', async (_, use) => {
    const [id, other] = [await newInvoice(), await newInvoice()];
    expect(await use(database, { id })).toBeTruthy();
    expect(await database.manager.findOneByOrFail(Invoice, { id: other })).toMatchObject({
      state: 'OPEN',
      version: 1,
    });
  });

  it('of a related row that names this one must be there', async () => {
    const unsaved = fencedFindOne(database, Receipt, { invoice: new Unsaved() as unknown as Invoice }, 5n);
    await expect(unsaved).rejects.toThrow('invoice.id to be a value');
  });

  it.each(helpers)('of a related row without an id names no row for %s', async (_, use) => {
    const unsaved = use(database, { corrects: new Unsaved() });
    await expect(unsaved).rejects.toThrow(LockConfigError);
    await expect(unsaved).rejects.toThrow('corrects.id to be a value');
  });
});
