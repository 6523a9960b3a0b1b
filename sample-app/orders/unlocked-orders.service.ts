import { Injectable } from '@nestjs/common';
import { OrdersService, type Receipt } from './orders.service.js';

/** The same without the lock: it sells what is not there. For the demonstration only. */
@Injectable()
export class UnlockedOrdersService extends OrdersService {
  override place(product: string, paymentMs?: number): Promise<Receipt> {
    return this.takeOne(product, 0n, paymentMs);
  }
}
