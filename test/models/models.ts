interface Model {
  /** Of the file beside this one. */
  readonly name: string;
  /** What must break it. */
  readonly faults: readonly string[];
}

export const models: readonly Model[] = [
  { name: 'mutex', faults: ['NO_FENCING', 'NO_DEPUTY', 'NO_OWNER_CHECK'] },
  { name: 'quorum', faults: ['NO_QUARANTINE', 'NAIVE'] },
  { name: 'handover', faults: ['ONE_TOKEN', 'FOR_EVER', 'KEEPS_LOST'] },
  {
    name: 'read-write',
    faults: ['ONE_FREE', 'NO_TURN', 'KEEPS_SLOTS', 'KEEPS_EARLY_SLOTS', 'NO_CHECK', 'READER_KEEPS_NO_SLOT'],
  },
  { name: 'cron', faults: ['NO_WATERMARK', 'UNNOTED', 'BURIED'] },
];
