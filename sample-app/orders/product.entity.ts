import { FencingToken } from 'nestjs-distributed-lock/typeorm';
import { Column, Entity, PrimaryColumn } from 'typeorm';

@Entity('products')
export class Product {
  @PrimaryColumn({ type: 'varchar', length: 40 })
  name!: string;

  @Column('int')
  stock!: number;

  /** Of the lock under which the stock was written last. */
  @FencingToken()
  fencingToken?: bigint;
}
