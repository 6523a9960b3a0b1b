import type { EntityMetadata, ObjectLiteral } from 'typeorm';
import { LockConfigError } from '../../../core/errors.js';
import { formatValue } from '../../../core/format.js';

/**
 * The id of a row that was read.
 *
 * @throws LockConfigError if the id was not selected, or the driver has rounded it
 */
export function idOf(metadata: EntityMetadata, row: ObjectLiteral): ObjectLiteral {
  for (const column of metadata.primaryColumns) {
    const value: unknown = column.getEntityValue(row);
    if (typeof value === 'number' && Math.abs(value) > Number.MAX_SAFE_INTEGER) {
      throw new LockConfigError(
        `Expected the ${column.propertyPath} of ${metadata.name} as it is, got ${formatValue(value)}, which the driver has rounded, ` +
          `so that it may be that of another row.`,
      );
    }
  }
  const id = metadata.getEntityIdMap(row);
  if (id) return id;
  throw new LockConfigError(
    `Expected the row of ${metadata.name} to have an id, got none. Is its column not selected?`,
  );
}
