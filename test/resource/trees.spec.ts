import { describe, expect, it } from 'vitest';
import {
  Column,
  type DataSource,
  Entity,
  PrimaryGeneratedColumn,
  Tree,
  TreeChildren,
  TreeParent,
  VersionColumn,
} from 'typeorm';
import { optimisticUpdate } from '../../lib/backends/typeorm/index.js';
import { LockConfigError } from '../../lib/core/errors.js';
import { databases, tablesOn } from './databases.js';

@Entity()
@Tree('materialized-path')
class Category {
  @PrimaryGeneratedColumn()
  id!: number;

  @Column({ type: 'varchar', length: 20, default: 'old' })
  name!: string;

  @TreeParent()
  parent!: Category | null;

  @TreeChildren()
  children!: Category[];

  @VersionColumn()
  version!: number;
}

describe.each(databases)('optimisticUpdate of a row of a tree on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Category], (opened) => (database = opened));

  it('changes the row, but refuses to move it: the paths would stay as they were', async () => {
    const trees = database.manager.getTreeRepository(Category);
    const [one, two] = [await trees.save(new Category()), await trees.save(new Category())];
    const child = await trees.save(Object.assign(new Category(), { parent: one }));
    const move = optimisticUpdate(database, Category, { id: child.id }, (row) => void (row.parent = two));
    await expect(move).rejects.toThrow(LockConfigError);
    await expect(move).rejects.toThrow('Expected the parent of Category to stay');
    await optimisticUpdate(database, Category, { id: child.id }, (row) => void (row.name = 'new'));
    expect((await trees.findDescendants(one)).map(({ id, name }) => [id, name])).toEqual([
      [one.id, 'old'],
      [child.id, 'new'],
    ]);
  });
});
