/*
 * Read and write locks from slots: lib/core/kinds/read-write/. Slot 0 is the turn, and each reading process has one of the others.
 *
 * Modelled: a request to the store is one step, and so is the release of all slots of a writer, whose slots are granted in any order. Each slot is a
 * mutex (mutex.pml), which is granted to any of those who wait for it: the order of its queue must not matter here. One client may crash anywhere,
 * and then its leases lapse one by one. Single leases of clients that live may lapse (MAXP): of a holder, who then may rely on nothing, and of one who
 * waits. A writer that waits notices the loss of its turn, and that of another slot when it has all of them.
 *
 * Left out: the readers of one process that share a slot, renewals, requests that arrive twice or late.
 *
 * Must hold: a writer that has not lost a lease is alone; its fencing token is the newest; once it has its turn, each reading process enters at
 * most once without a turn of its own; nobody waits for ever (no invalid end state).
 * Must be refuted: -DONE_FREE (a writer leaves a slot out), -DNO_TURN (writers take the slots without a turn), -DKEEPS_SLOTS (a
 * writer that has lost its turn waits on with its slots), -DKEEPS_EARLY_SLOTS (a writer waits for the turn while it has slots), -DNO_CHECK (readers do not look whether a writer has the turn),
 * -DREADER_KEEPS_NO_SLOT (a reader that had its turn reads under it, and not under a slot).
 */
#define WRITERS 2
#define READERS 2
#define N 4
#define TURNS (5 - me) /* the first reader reads twice, the other one and the writers once */
#define MAXP 1

#define NONE 0
#define READS 1
#define WRITES 2

byte owner[3], mode[N + 1];
bool lapsed[N + 1], dead[N + 1];
byte fence, newest;
bool hasEntered[N + 1]; /* without a turn of its own, since a writer got the turn */
byte pauses, crashes, gone;

#define MAY_CRASH if :: atomic { crashes == 0 -> crashes++; dead[me] = true; gone++ }; goto ended :: skip fi

inline give(slot) {
  if
  :: owner[slot] == me -> owner[slot] = 0
  :: else
  fi
}

inline giveAll() {
  atomic { mode[me] = NONE; lapsed[me] = false; give(0); give(1); give(2); has1 = false; has2 = false }
}

/* Those who rely on their leases may be beside each other only if both read. */
inline check() {
  other = 1;
  do
  :: other <= N ->
     assert(other == me || lapsed[me] || lapsed[other] || mode[other] == NONE || (mode[me] == READS && mode[other] == READS));
     other++
  :: else -> break
  od;
  other = 0
}

/* Tokens grow for readers that take the turn too, which makes no difference. */
inline takeTurnToWrite() {
  owner[0] = me; fence++; token = fence;
  hasEntered[3] = false; hasEntered[4] = false
}

/*
 * A writer asks for the turn and for the slots in one batch. It keeps the slots that are granted only if it has the turn by then. Whether a slot is
 * granted with the rest of the batch is left open, so that nothing depends on that.
 */
inline askForAll() {
  atomic {
    lapsed[me] = false;
    if :: owner[1] == 0 -> owner[1] = me; has1 = true :: skip fi;
    if :: owner[2] == 0 -> owner[2] = me; has2 = true :: skip fi
  };
  MAY_CRASH;
  if
  :: atomic { owner[0] == 0 -> takeTurnToWrite() }
#ifndef KEEPS_EARLY_SLOTS
  :: atomic { give(1); give(2); has1 = false; has2 = false };
     atomic { owner[0] == 0 -> lapsed[me] = false; takeTurnToWrite() }
#endif
  fi
}

/* A free slot of readers, if there is one. */
inline takeSlot() {
  if
  :: owner[1] == 0 -> slot = 1
  :: owner[2] == 0 -> slot = 2
  fi;
  owner[slot] = me; lapsed[me] = false; mode[me] = READS;
  check()
}

proctype reader(byte me) {
  byte turns, slot, other;
  bool isFree;
  do
  :: turns < TURNS ->
#ifdef NO_CHECK
     isFree = true;
#else
     isFree = owner[0] == 0;
#endif
     atomic {
       if
       :: isFree && (owner[1] == 0 || owner[2] == 0) ->
          takeSlot();
          if
          :: owner[0] != 0 && owner[0] <= WRITERS -> assert(!hasEntered[me]); hasEntered[me] = true
          :: else
          fi
       :: else
       fi
     };
     if
     :: slot == 0 ->
        atomic { owner[0] == 0 -> owner[0] = me };
        MAY_CRASH;
#ifdef READER_KEEPS_NO_SLOT
        atomic { lapsed[me] = false; mode[me] = READS; check() };
#else
        atomic { (owner[1] == 0 || owner[2] == 0) -> takeSlot() };
#endif
        MAY_CRASH;
        atomic { give(0) }
     :: else
     fi;
     MAY_CRASH;
     atomic { check() };
     atomic {
       if :: slot != 0 -> give(slot) :: else fi;
       mode[me] = NONE; lapsed[me] = false; slot = 0; isFree = false; turns++
     }
  :: else -> break
  od;
  gone++;
ended:
  skip
}

proctype writer(byte me) {
  byte token, other;
  bool has1, has2;
again:
#ifdef NO_TURN
  atomic { lapsed[me] = false };
#else
  askForAll();
#endif
#ifdef ONE_FREE
  has2 = true;
#endif
  do
  :: atomic { !has1 && owner[1] == 0 -> owner[1] = me; has1 = true }
  :: atomic { !has2 && owner[2] == 0 -> owner[2] = me; has2 = true }
  :: atomic { crashes == 0 -> crashes++; dead[me] = true; gone++ }; goto ended
#if !defined(NO_TURN) && !defined(KEEPS_SLOTS)
  :: owner[0] != me -> giveAll(); goto again
#endif
  :: has1 && has2 -> break
  od;
  atomic {
    if
    :: lapsed[me] -> giveAll(); goto again
    :: else -> mode[me] = WRITES; check();
#ifndef NO_TURN
       assert(token > newest); newest = token
#endif
    fi
  };
  MAY_CRASH;
  atomic { check() };
  giveAll();
  gone++;
ended:
  skip
}

/* Only the turn of a reader says nothing about what it may rely on. */
inline lapse(slot) {
  if
  :: slot != 0 || owner[slot] <= WRITERS -> lapsed[owner[slot]] = true
  :: else
  fi;
  owner[slot] = 0
}

active proctype time() {
end:
  do
  :: atomic { owner[0] != 0 && dead[owner[0]] -> lapse(0) }
  :: atomic { owner[1] != 0 && dead[owner[1]] -> lapse(1) }
  :: atomic { owner[2] != 0 && dead[owner[2]] -> lapse(2) }
  :: atomic { owner[0] != 0 && !dead[owner[0]] && pauses < MAXP -> pauses++; lapse(0) }
  :: atomic { owner[1] != 0 && !dead[owner[1]] && pauses < MAXP -> pauses++; lapse(1) }
  :: atomic { owner[2] != 0 && !dead[owner[2]] && pauses < MAXP -> pauses++; lapse(2) }
  :: gone == N -> break
  od
}

init {
  byte i = 1;
  atomic {
    do
    :: i <= N ->
       if
       :: i <= WRITERS -> run writer(i)
       :: else -> run reader(i)
       fi;
       i++
    :: else -> break
    od
  }
}
