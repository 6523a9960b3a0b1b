import { BadRequestException, Body, Controller, Get, ParseIntPipe, Post, UseFilters } from '@nestjs/common';
import { DataSource } from 'typeorm';
import { LockErrorFilter } from '../locks/lock-error.filter.js';
import { OrdersService, type Receipt } from './orders.service.js';
import { Product } from './product.entity.js';

@Controller()
@UseFilters(LockErrorFilter)
export class OrdersController {
  constructor(
    private readonly orders: OrdersService,
    private readonly dataSource: DataSource,
  ) {}

  /** 201 with a receipt, 409 if it is sold out, 503 if the line was too long. */
  @Post('orders')
  order(
    @Body('product') product: unknown,
    @Body('paymentMs', new ParseIntPipe({ optional: true })) paymentMs?: number,
  ): Promise<Receipt> {
    if (typeof product !== 'string') {
      throw new BadRequestException('Expected the name of a product, such as { "product": "lamp" }.');
    }
    return this.orders.place(product, paymentMs);
  }

  @Get('products')
  products(): Promise<Product[]> {
    return this.dataSource.manager.find(Product, { order: { name: 'ASC' } });
  }
}
