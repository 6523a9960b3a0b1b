/** One clock for all processes of a machine, in ms. */
export const machineMs = (): number => Number(process.hrtime.bigint()) / 1e6;
