import { Column, Entity, PrimaryColumn } from 'typeorm';
import { FencingToken } from '../../lib/backends/typeorm/index.js';

/** A small row with a fencing token. */
@Entity()
export class Seat {
  @PrimaryColumn('int')
  id!: number;

  @Column('int')
  count!: number;

  @FencingToken()
  fencingToken?: bigint;
}
