import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm';

/** One run of the report job. */
@Entity('reports')
export class Report {
  @PrimaryGeneratedColumn()
  id!: number;

  /** The planned instant the run stands for. */
  @Column({ type: 'varchar', length: 30 })
  tick!: string;

  @Column({ type: 'varchar', length: 40 })
  replica!: string;

  /** Larger than that of every run before. */
  @Column({ type: 'varchar', length: 20 })
  fencingToken!: string;

  /** How many items were sold by then. */
  @Column('int')
  sold!: number;
}
