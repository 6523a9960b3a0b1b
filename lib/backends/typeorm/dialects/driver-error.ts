/** Code and message of the driver's error, which TypeORM wraps in its own. */
export function driverErrorOf(cause: unknown): { code: string; message: string } {
  const { driverError = cause } = Object(cause) as { driverError?: unknown };
  const { code, errno, message } = Object(driverError) as {
    code?: unknown;
    errno?: unknown;
    message?: unknown;
  };
  return { code: String(errno ?? code), message: String(message) };
}
