import { Module } from '@nestjs/common';
import { DataSource } from 'typeorm';
import { Settings } from '../settings/settings.js';
import { OrdersController } from './orders.controller.js';
import { OrdersService } from './orders.service.js';
import { UnlockedOrdersService } from './unlocked-orders.service.js';

@Module({
  controllers: [OrdersController],
  providers: [
    {
      // An application without a demonstration to give lists `OrdersService`, and that is all.
      provide: OrdersService,
      inject: [DataSource, Settings],
      useFactory: (dataSource: DataSource, settings: Settings) => {
        const Orders = settings.isLocked ? OrdersService : UnlockedOrdersService;
        return new Orders(dataSource, settings);
      },
    },
  ],
})
export class OrdersModule {}
