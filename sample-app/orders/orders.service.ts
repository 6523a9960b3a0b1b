import { setTimeout as sleep } from 'node:timers/promises';
import { ConflictException, Injectable, NotFoundException } from '@nestjs/common';
import { type Lock, Locked, currentLock } from 'nestjs-distributed-lock';
import { fencedFindOne, fencedUpdate } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';
import { Settings } from '../settings/settings.js';
import { Order } from './order.entity.js';
import { Product } from './product.entity.js';

export interface Receipt {
  readonly product: string;
  readonly replica: string;
  readonly stockLeft: number;
}

@Injectable()
export class OrdersService {
  constructor(
    private readonly dataSource: DataSource,
    private readonly settings: Settings,
  ) {}

  /** One order at a time for each product, whichever replica it reaches; orders for other products do not wait. */
  @Locked('product:{0}')
  place(product: string, paymentMs?: number): Promise<Receipt> {
    const lock = currentLock();
    if (!lock) throw new Error('Expected @Locked() to have acquired the lock.');
    return this.takeOne(product, lock, paymentMs);
  }

  /** Reads the stock, waits for the payment, and writes what it read minus one: wrong, if anybody else does so too. */
  protected async takeOne(
    name: string,
    lock: Lock | bigint,
    paymentMs = 5 + Math.random() * 15,
  ): Promise<Receipt> {
    // Puts the token of our lock into the row, so that an older holder who wakes up from here on writes nothing.
    const product = await fencedFindOne(this.dataSource, Product, { name }, lock);
    if (!product) throw new NotFoundException(`There is no product "${name}".`);
    if (product.stock <= 0) throw new ConflictException(`${name} is sold out.`);

    await sleep(paymentMs);

    const { replica } = this.settings;
    const stockLeft = product.stock - 1;
    // Only the two writes: for SQLite, TypeORM has one connection, and what else ran meanwhile would be in here as well.
    await this.dataSource.transaction(async (manager) => {
      // Throws if this process was paused for longer than its lease, and a newer holder has sold meanwhile.
      await fencedUpdate(manager, Product, { name }, { stock: stockLeft }, lock);
      await manager.insert(Order, { product: name, replica });
    });
    return { product: name, replica, stockLeft };
  }
}
