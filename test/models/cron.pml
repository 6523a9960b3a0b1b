/*
 * The claim of a tick, and its take-over when a run dies: lib/core/tick.ts, as a store does it in one step.
 *
 * Modelled: replicas that claim the ticks of a job, each whenever its own clock says so, which may be early, late, again,
 * or for an older tick than the newest claimed one. The store keeps the newest claimed tick with its attempt, which is 0
 * once a run of it has ended. A run ends and says so, or dies (the process crashes, or its lease ends while it still
 * works). Once the lease of a run that did not end is over, another may take it over, up to ATTEMPTS times; that may
 * become too late, and no tick is claimed anew once it is stale.
 *
 * Left out: registration, ticks with keys of their own, answers that get lost (the claim is made again by the same holder,
 * and is the same grant).
 *
 * Must hold: a tick is claimed for a first time once at most; no run is given out after one of the same tick has ended;
 * a tick is given out ATTEMPTS times at most; runs whose leases last never overlap; while a run that died may be taken
 * over, no newer tick is given out.
 * Must be refuted: -DNO_WATERMARK (a free key is enough, as with a lock that is held while the job runs), -DUNNOTED (a run
 * that ends frees the key and no more), -DBURIED (a newer tick is given out although an older run may be taken over).
 */
#define REPLICAS 3
#define TICKS 2
#define ATTEMPTS 2
#define MOST_CRASHES 2

byte tick, attempt; /* the newest claimed one; 0: none of its runs is unfinished */
byte holder, newest; /* whose lease runs; whose run was given out last */
bool isOver[TICKS + 1]; /* too late to claim it, or to take it over */
byte given[TICKS + 1], firsts[TICKS + 1];
bool hasEnded[TICKS + 1];
byte crashes;

inline claim(me, wanted, isMine) {
  atomic {
    isMine = false;
    if
    :: holder != 0 -> skip /* a run is on */
#ifdef NO_WATERMARK
    :: holder == 0 && !isOver[wanted] -> isMine = true; tick = wanted; attempt = 1; firsts[wanted]++
#else
#ifndef BURIED
    /* An older one must be taken over first. */
    :: holder == 0 && wanted > tick && attempt > 0 && attempt < ATTEMPTS && !isOver[tick] -> skip
    :: holder == 0 && wanted > tick && !(attempt > 0 && attempt < ATTEMPTS && !isOver[tick]) ->
#else
    :: holder == 0 && wanted > tick ->
#endif
       if
       :: isOver[wanted] -> skip
       :: else ->
          /* Nobody may still take over what this one hides. */
          assert(tick == 0 || hasEnded[tick] || given[tick] == ATTEMPTS || isOver[tick]);
          isMine = true; tick = wanted; attempt = 1; firsts[wanted]++
       fi
    :: holder == 0 && wanted == tick && attempt > 0 && attempt < ATTEMPTS && !isOver[wanted] ->
       isMine = true; attempt++
    :: holder == 0 && wanted == tick && !(attempt > 0 && attempt < ATTEMPTS && !isOver[wanted]) -> skip
    :: holder == 0 && wanted < tick -> skip
#endif
    fi;
    if
    :: isMine ->
       assert(!hasEnded[wanted]);
       given[wanted]++;
       assert(given[wanted] <= ATTEMPTS);
       assert(firsts[wanted] <= 1);
       holder = me; newest = me
    :: else
    fi
  }
}

/* Counts also after the lease, as long as nobody has come since. */
inline finish(me, wanted) {
  atomic {
    if
    :: newest == me ->
       newest = 0;
       hasEnded[wanted] = true;
#ifndef UNNOTED
       attempt = 0;
#endif
       if :: holder == me -> holder = 0 :: else fi
    :: else
    fi
  }
}

proctype replica(byte me) {
  byte wanted, tries;
  bool isMine;
  do
  :: tries < TICKS + 1 ->
     tries++;
     select(wanted : 1 .. TICKS);
     claim(me, wanted, isMine);
     if
     :: isMine ->
        if
        :: finish(me, wanted)
        :: atomic { crashes < MOST_CRASHES -> crashes++ }; break
        fi
     :: else
     fi
  :: else -> break
  od
}

active proctype time() {
  byte i;
end:
  do
  :: atomic { holder != 0 -> holder = 0 }
  :: atomic { !isOver[1] -> isOver[1] = true }
  :: atomic { isOver[1] && !isOver[2] -> isOver[2] = true }
  od
}

init {
  byte i = 1;
  atomic {
    do
    :: i <= REPLICAS -> run replica(i); i++
    :: else -> break
    od
  }
}
