/** The arguments of the command cannot be understood. */
export class UsageError extends Error {}
