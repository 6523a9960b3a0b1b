import { Column, Entity, PrimaryColumn, VersionColumn } from 'typeorm';
import { FencingToken } from '../../lib/backends/typeorm/index.js';

/** A row that every helper can work on. */
@Entity()
export class Task {
  @PrimaryColumn('int')
  id!: number;

  @Column({ type: 'varchar', length: 10, default: 'WAITING' })
  state!: string;

  @Column('int', { default: 0 })
  progress!: number;

  @VersionColumn()
  version!: number;

  @FencingToken()
  fencingToken?: bigint;
}
