import { describe, expect, it, vi } from 'vitest';
import {
  Column,
  type DataSource,
  Entity,
  JoinColumn,
  ManyToOne,
  OneToOne,
  PrimaryColumn,
  type ValueTransformer,
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
import { sqlServers } from '../support/stores.js';
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

/** A value that the drivers of servers accept as it is, and whose fields nobody else sees. */
class Amount {
  readonly #cents: bigint;

  constructor(cents: bigint) {
    this.#cents = cents;
  }

  toPostgres(): string {
    return this.toString();
  }

  toString(): string {
    return String(this.#cents);
  }
}

@Entity()
class Account {
  @PrimaryColumn('int')
  id!: number;

  @Column({
    type: 'bigint',
    transformer: { to: (amount: unknown) => amount, from: (text: string) => new Amount(BigInt(text)) },
  })
  balance!: Amount;

  @VersionColumn()
  version!: number;
}

/** A row to which the database has not given an id yet. */
class Unsaved {
  readonly id = undefined;
}

const transformerOf = (database: DataSource) =>
  database.getMetadata(Account).findColumnWithPropertyName('balance')!.transformer as ValueTransformer;

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

describe.each(sqlServers)('a value object as a value, on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Account], (opened) => (database = opened));
  const balanceOf = async (id: number) =>
    String((await database.manager.findOneByOrFail(Account, { id })).balance);

  it('is written by optimisticUpdate', async () => {
    await database.manager.insert(Account, { id: 1, balance: new Amount(1_000n) });
    const change = (account: Account) => void (account.balance = new Amount(2_500n));
    const account = await optimisticUpdate(database, Account, { id: 1 }, change);
    expect(String(account?.balance)).toBe('2500');
    expect(await balanceOf(1)).toBe('2500');
  });

  it('that was changed in place is written by optimisticUpdate', async () => {
    class Counter {
      #cents = 0n;
      toPostgres = () => this.toString();
      toString = () => String(this.#cents);
      add = () => void (this.#cents += 5n);
    }
    const counter = new Counter();
    const from = vi.spyOn(transformerOf(database), 'from').mockImplementation(() => counter as never);
    await database.manager.insert(Account, { id: 2, balance: new Amount(0n) });
    await optimisticUpdate(database, Account, { id: 2 }, () => counter.add());
    from.mockRestore();
    expect(await balanceOf(2)).toBe('5');
  });

  it('in a changed copy is refused by optimisticUpdate', async () => {
    await database.manager.insert(Account, { id: 4, balance: new Amount(1n) });
    const copy = (account: Account) =>
      Object.assign(new Account(), account, { balance: new Amount(2n) }) as never;
    await expect(optimisticUpdate(database, Account, { id: 4 }, copy)).rejects.toThrow(LockConfigError);
  });

  it('can be claimed from one value to another', async () => {
    await database.manager.insert(Account, { id: 3, balance: new Amount(7n) });
    const claim = { from: { balance: new Amount(7n) }, to: { balance: new Amount(8n) } };
    expect(await claimRow(database, Account, claim)).toMatchObject({ id: 3 });
    expect(await claimRow(database, Account, claim)).toBeNull();
    expect(await balanceOf(3)).toBe('8');
  });
});

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
