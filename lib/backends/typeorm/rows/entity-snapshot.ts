import { isDeepStrictEqual } from 'node:util';
import type { DataSource, EntityMetadata, ObjectLiteral } from 'typeorm';
import { LockConfigError } from '../../../core/errors.js';
import { formatValue } from '../../../core/format.js';
import { comparableValue } from './comparable-value.js';
import { type ColumnMetadata, dataSourceOf, isInProcess } from './database.js';
import { isFencingToken, tokenGivenError } from './fencing-token.js';
import { LazyRelations } from './lazy-relations.js';
import { mergeDeep } from './where-conditions.js';

/** A row as it was read, to find later which of its values have changed, also deep inside a JSON column. */
export class EntitySnapshot {
  readonly id: ObjectLiteral;
  readonly version: ObjectLiteral;
  readonly metadata: EntityMetadata;
  readonly #dataSource: DataSource;
  readonly #row: ObjectLiteral;
  readonly #lazyRelations: LazyRelations;
  readonly #stored: ReadonlyMap<ColumnMetadata, unknown>;
  readonly #versionColumn: ColumnMetadata;
  /** What the row consists of besides columns, as it was read. */
  readonly #unwritable: ReadonlyMap<string, unknown>;

  /** @throws LockConfigError if the row has no version or no id */
  constructor(dataSource: DataSource, metadata: EntityMetadata, row: ObjectLiteral) {
    this.#dataSource = dataSource;
    this.metadata = metadata;
    this.#row = row;
    this.#lazyRelations = new LazyRelations(metadata, row);
    this.#versionColumn = versionColumnOf(metadata);
    const version: unknown = this.#versionColumn.getEntityValue(row);
    if (version === undefined || version === null) {
      throw new LockConfigError(
        `Expected the row of ${metadata.name} to have a version, got ${formatValue(version)}. Is its column NULL, or not selected?`,
      );
    }
    this.id = idOf(metadata, row);
    this.version = this.#versionColumn.createValueMap(version);
    this.#unwritable = new Map(unwritableOf(metadata, row));
    this.#stored = new Map(metadata.columns.map((column) => [column, this.#storedValueOf(column)]));
  }

  /**
   * The changed values, and no others: the rest of an embedded object may not have been read.
   *
   * @throws LockConfigError if a value has become undefined or a function, a fencing token or something that no column stores
   *   has changed, or a row has moved in a tree; what an assigned promise of a lazy relation rejects with
   */
  async changes(): Promise<ObjectLiteral> {
    await this.#lazyRelations.settle();
    for (const [path, value] of unwritableOf(this.metadata, this.#row))
      if (value !== this.#unwritable.get(path)) throw unwritableError(this.metadata, path);
    const changed = this.metadata.columns.filter(
      (column) =>
        (column.isUpdate || isFencingToken(column)) &&
        column !== this.#versionColumn &&
        !isDeepStrictEqual(this.#storedValueOf(column), this.#stored.get(column)),
    );
    throwIfMoved(this.metadata, changed);
    const token = changed.find(isFencingToken);
    if (token && this.#hasOtherToken(token)) throw tokenGivenError(token.propertyPath);
    return changed
      .filter((column) => column !== token)
      .map((column) => this.#change(column))
      .reduce(mergeDeep, {});
  }

  /** Sets the version of the row to the one that the database has after the write. */
  incrementVersion(): void {
    const read: unknown = this.#versionColumn.getEntityValue(this.version);
    // Drivers return a BIGINT as text, or with safe integers each integer as a bigint.
    const isText = typeof read === 'string';
    const next = isText
      ? String(BigInt(read) + 1n)
      : typeof read === 'bigint'
        ? read + 1n
        : (read as number) + 1;
    this.#versionColumn.setEntityValue(this.#row, next);
  }

  #storedValueOf(column: ColumnMetadata): unknown {
    const value = this.#valueOf(column);
    // The column was not read. Its transformer may expect a value.
    if (value === undefined) return undefined;
    const prepared: unknown = this.#dataSource.driver.preparePersistentValue(value, column);
    if (typeof prepared === 'function') throw expressionError(this.metadata, column);
    return comparableValue(prepared);
  }

  /** The application may have made a number or a text of it. */
  #hasOtherToken(column: ColumnMetadata): boolean {
    const token = this.#storedValueOf(column);
    const [is, was] = [token, this.#stored.get(column)].map(String);
    return token !== undefined && is !== was;
  }

  /** A relation that was set to null counts as null. TypeORM would return the value of the column that keeps its id. */
  #valueOf(column: ColumnMetadata): unknown {
    const row = column.relationMetadata?.isLazy ? this.#lazyRelations.readableRow : this.#row;
    return column.relationMetadata?.getEntityValue(row) === null ? null : column.getEntityValue(row);
  }

  #change(column: ColumnMetadata): ObjectLiteral {
    const value = this.#valueOf(column);
    if (value === undefined) {
      throw new LockConfigError(
        `Expected a value for ${column.propertyPath} of ${this.metadata.name}, got undefined. To empty a column write null.`,
      );
    }
    // If a column has no property of its own, TypeORM takes its value from the related object.
    const { relationMetadata } = column;
    if (!column.isVirtual || !relationMetadata) return column.createValueMap(value);
    return relationMetadata.createValueMap(relationMetadata.getEntityValue(this.#row)) as ObjectLiteral;
  }
}

/**
 * Only `save()` also changes the paths and the other rows that say where a row is in its tree.
 *
 * @throws LockConfigError if the parent has changed, unless the tree consists of nothing but parents
 */
function throwIfMoved({ name, treeType }: EntityMetadata, changed: readonly ColumnMetadata[]): void {
  const parent = changed.find(({ relationMetadata }) => relationMetadata?.isTreeParent)?.relationMetadata;
  if (!parent || !treeType || treeType === 'adjacency-list') return;
  throw new LockConfigError(
    `Expected the ${parent.propertyPath} of ${name} to stay, got another one: an update moves no row within a tree. Move it ` +
      `with save() of its repository, under a lock.`,
  );
}

/** The relations whose ids are in other rows, and copies of ids that TypeORM makes when it reads a row. */
const unwritableOf = ({ relations, relationIds }: EntityMetadata, row: ObjectLiteral) => [
  ...relations
    .filter(({ isOwning, isManyToMany, isLazy }) => !isLazy && (!isOwning || isManyToMany))
    .map((relation) => [relation.propertyPath, relation.getEntityValue(row)] as const),
  ...relationIds.map((relationId) => [relationId.propertyName, row[relationId.propertyName]] as const),
];

const unwritableError = ({ name }: EntityMetadata, path: string) =>
  new LockConfigError(
    `Expected changes of columns of ${name}, got one of ${path}, which is stored in other rows or read from another column. ` +
      `Assign the relation that has the column, or write with save() of its repository under a lock.`,
  );

const expressionError = ({ name }: EntityMetadata, { propertyPath }: ColumnMetadata) =>
  new LockConfigError(
    `Expected a value for ${propertyPath} of ${name}, got a function. Compute the value from the row, or write an SQL ` +
      `expression with update() of its repository or with fencedUpdate().`,
  );

/** @throws LockConfigError for a version among written values: TypeORM would write it instead of incrementing that of the row */
export function throwIfVersionGiven({ versionColumn }: EntityMetadata, values: object): void {
  if (!versionColumn || versionColumn.getEntityValue(values) === undefined) return;
  throw new LockConfigError(
    `Expected values without '${versionColumn.propertyPath}', which each write increments, got one. Leave it out: write what ` +
      `you have changed, and not the whole row.`,
  );
}

/** @throws LockConfigError if the entity has none */
export function versionColumnOf({ name, versionColumn }: EntityMetadata): ColumnMetadata {
  if (versionColumn) return versionColumn;
  throw new LockConfigError(`Expected the entity ${name} to have a @VersionColumn(), got none.`);
}

/**
 * @throws LockConfigError if the entity has no id, as a view may: an update would write all rows that look alike. On SQLite, also
 *   for a view with an id: an update of it, which triggers do, reports that no row has changed.
 */
export function requireId(metadata: EntityMetadata): void {
  const { name, primaryColumns, tableType } = metadata;
  if (tableType === 'view' && isInProcess(dataSourceOf(metadata).manager)) {
    throw new LockConfigError(
      `Expected an entity of a table, got the view ${name}: SQLite does not say how many rows an update of a view has ` +
        `changed. Use the entity of its table.`,
    );
  }
  if (primaryColumns.length > 0) return;
  throw new LockConfigError(
    `Expected the entity ${name} to have an id, got none: all rows that look alike would be written. If it is a view, put ` +
      `@PrimaryColumn() on its id instead of @ViewColumn(), or use the entity of its table.`,
  );
}

/**
 * The id of a row that was read.
 *
 * @throws LockConfigError if the id was not selected, or the driver has rounded it
 */
export function idOf(metadata: EntityMetadata, row: ObjectLiteral): ObjectLiteral {
  checkIdIsExact(metadata, row);
  for (const column of metadata.primaryColumns) {
    const value: unknown = column.getEntityValue(row);
    if (value instanceof Date && !(column.precision != null && column.precision <= 3)) {
      throw new LockConfigError(
        `Expected an id of ${metadata.name} that can be compared, got a date as ${column.propertyPath}. A date has no ` +
          `microseconds, so it may match another row or none. Give its column { precision: 3 }, or use another id.`,
      );
    }
  }
  const id = metadata.getEntityIdMap(row);
  if (id) return id;
  throw new LockConfigError(
    `Expected the row of ${metadata.name} to have an id, got none. Is its column not selected?`,
  );
}

/**
 * Drivers of SQLite round large integers. A `save()` of such a row would write another one.
 *
 * @throws LockConfigError if the driver has rounded the id
 */
export function checkIdIsExact({ name, primaryColumns }: EntityMetadata, row: ObjectLiteral): void {
  for (const column of primaryColumns) {
    const value: unknown = column.getEntityValue(row);
    if (typeof value !== 'number' || Math.abs(value) <= Number.MAX_SAFE_INTEGER) continue;
    throw new LockConfigError(
      `Expected the ${column.propertyPath} of ${name} as it is, got ${formatValue(value)}, which the driver has rounded, ` +
        `so that it may be that of another row.`,
    );
  }
}
