import type { DiscoveryService } from '@nestjs/core';
import { type SeatToken, isEmptySeat } from './seat.js';

/** Fills the seats of instances that Nest did not make itself: those of `useFactory` and `useValue`. */
export function fillEmptySeats(discovery: DiscoveryService, seats: ReadonlyMap<SeatToken, unknown>): void {
  for (const { instance } of [...discovery.getProviders(), ...discovery.getControllers()]) {
    if (typeof instance !== 'object' || instance === null) continue;
    for (const [token, service] of seats) {
      if (isEmptySeat(instance as object, token)) (instance as Record<symbol, unknown>)[token] = service;
    }
  }
}
