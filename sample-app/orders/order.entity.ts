import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm';

/** An accepted order for one item. */
@Entity('orders')
export class Order {
  @PrimaryGeneratedColumn()
  id!: number;

  @Column({ type: 'varchar', length: 40 })
  product!: string;

  /** Who took it. */
  @Column({ type: 'varchar', length: 40 })
  replica!: string;
}
