import { isDeepStrictEqual } from 'node:util';
import type { DataSource, EntityMetadata, ObjectLiteral } from 'typeorm';
import { LockConfigError } from '../../../core/errors.js';
import { formatValue } from '../../../core/format.js';
import type { ColumnMetadata } from './database.js';
import { mergeDeep, objectAtPath } from './plain-objects.js';
import { idOf } from './row-id.js';

/** A row as it was read, to tell later what has been changed in it, also deep inside of a JSON column. */
export class EntitySnapshot {
  readonly id: ObjectLiteral;
  readonly version: ObjectLiteral;
  readonly #dataSource: DataSource;
  readonly #metadata: EntityMetadata;
  readonly #row: ObjectLiteral;
  /** Columns of relations that were null before anybody changed them, as by an initialiser. */
  readonly #nullRelationColumns: ReadonlySet<ColumnMetadata>;
  readonly #stored: ReadonlyMap<ColumnMetadata, unknown>;
  readonly #versionColumn: ColumnMetadata;

  /** @throws LockConfigError */
  constructor(dataSource: DataSource, metadata: EntityMetadata, row: ObjectLiteral) {
    this.#dataSource = dataSource;
    this.#metadata = metadata;
    this.#row = row;
    this.#versionColumn = versionColumnOf(metadata);
    const version: unknown = this.#versionColumn.getEntityValue(row);
    if (version === undefined || version === null) {
      throw new LockConfigError(
        `Expected the row of ${metadata.name} to have a version, got ${formatValue(version)}. Is its column NULL, or not selected?`,
      );
    }
    this.id = idOf(metadata, row);
    this.version = this.#versionColumn.createValueMap(version);
    this.#nullRelationColumns = new Set(
      metadata.columns.filter(({ relationMetadata }) => relationMetadata?.getEntityValue(row) === null),
    );
    this.#stored = new Map(metadata.columns.map((column) => [column, this.#storedValueOf(column)]));
  }

  /**
   * What is different now, and nothing beside it: the rest of an embedded object may not have been read.
   *
   * @throws LockConfigError
   */
  changes(): ObjectLiteral {
    const changed = this.#metadata.columns.filter(
      (column) =>
        column.isUpdate &&
        column !== this.#versionColumn &&
        !isDeepStrictEqual(this.#storedValueOf(column), this.#stored.get(column)),
    );
    return changed.map((column) => this.#change(column)).reduce(mergeDeep, {});
  }

  /** As the database has done. */
  incrementVersion(): void {
    const read: unknown = this.#versionColumn.getEntityValue(this.version);
    // A BIGINT comes as a text.
    const next = typeof read === 'number' ? read + 1 : String(BigInt(read as string) + 1n);
    this.#versionColumn.setEntityValue(this.#row, next);
  }

  #storedValueOf(column: ColumnMetadata): unknown {
    const value = this.#valueOf(column);
    return structuredClone(this.#dataSource.driver.preparePersistentValue(value, column) as unknown);
  }

  /** A relation that was set to null says more than the column beside it, which TypeORM would tell. */
  #valueOf(column: ColumnMetadata): unknown {
    const isNull =
      column.relationMetadata?.getEntityValue(this.#row) === null && !this.#nullRelationColumns.has(column);
    return isNull ? null : column.getEntityValue(this.#row);
  }

  #change(column: ColumnMetadata): ObjectLiteral {
    const value = this.#valueOf(column);
    if (value === undefined) {
      throw new LockConfigError(
        `Expected a value for ${column.propertyPath} of ${this.#metadata.name}, got undefined. To empty a column write null.`,
      );
    }
    // Where a column has no property of its own, TypeORM takes what it refers to from the related object.
    const { relationMetadata } = column;
    if (!column.isVirtual || !relationMetadata) return objectAtPath(column.propertyPath, value);
    return objectAtPath(relationMetadata.propertyPath, relationMetadata.getEntityValue(this.#row));
  }
}

/** @throws LockConfigError */
export function versionColumnOf({ name, versionColumn }: EntityMetadata): ColumnMetadata {
  if (versionColumn) return versionColumn;
  throw new LockConfigError(`Expected the entity ${name} to have a @VersionColumn(), got none.`);
}
