/*
 * The mutex with a line in the store: lib/backends/redis/single/lock-verbs.ts, and those who wait in lib/core/waiting/wait-queue.ts.
 *
 * Modelled: every script is one step. A free key with a line is kept for its head, who is called; the one behind him, the
 * deputy, is called for when that has not come. Whoever was refused also looks when the lease that he was told of is over,
 * or the time for which the key was kept. Nobody looks for any other reason, though in the code everybody does now and then: the calls alone must do. One client
 * may crash anywhere. A lease may lapse under a live holder who is paused (MAXP), a key that is kept may lapse although
 * its head lives (MAXK). The resource accepts a write only if its fencing token is not older than the newest it has seen.
 *
 * Left out: the block of tokens (handover.pml), renewals (they only move the lapse), requests that arrive twice or late,
 * lost calls, places that are overdue although their holder lives.
 *
 * Must hold: who works and has not lapsed is the one holder; between two accepted writes of one turn nobody else writes;
 * nobody waits for ever (no invalid end state).
 * Must be refuted: -DNO_FENCING, -DNO_DEPUTY, -DNO_OWNER_CHECK (a release does not look who holds the key).
 */
#define N 3
#ifndef R
#define R 1 /* turns of each client */
#endif
#define MAXP 1
#define MAXK 1

byte owner, kept, epoch, fence;
byte newest, writer; /* of the resource: the newest token it has seen, and who wrote last */
byte pauses, lates, crashes, gone;
chan line = [N] of { byte };
bool inLine[N + 1], dead[N + 1], lapsed[N + 1], called[N + 1], deputy[N + 1];
byte saw[N + 1]; /* the lease after whose end he looks */

/* Who stands first. A dead one is sent away once his place is overdue, which it may be or not. */
inline first(h) {
  h = 0;
  do
  :: nempty(line) ->
     line?<h>;
     if
     :: dead[h] -> line?h; inLine[h] = false; h = 0
     :: break
     fi
  :: empty(line) -> break
  od
}

inline leave(who) {
  if
  :: inLine[who] -> line??eval(who); inLine[who] = false
  :: else
  fi
}

inline stand(who) {
  if
  :: !inLine[who] -> line!who; inLine[who] = true
  :: else
  fi;
  saw[who] = epoch
}

/* Those look who were told of the present lease, or of how long the key is kept. */
inline wake() {
  if :: saw[1] == epoch -> called[1] = true :: else fi;
  if :: saw[2] == epoch -> called[2] = true :: else fi;
  if :: saw[3] == epoch -> called[3] = true :: else fi
}

/* It was kept for a short time, which passes soon whatever becomes of it. */
inline endKeeping() {
  if
  :: kept != 0 -> wake(); kept = 0
  :: else
  fi
}

/* The key is free now: kept for the first in line, if there is one. */
inline handOver(h) {
  endKeeping();
  owner = 0; epoch++;
  first(h);
  if
  :: h != 0 ->
     leave(h);
     kept = h; called[h] = true;
     first(h);
#ifndef NO_DEPUTY
     if :: h != 0 -> deputy[h] = true :: else fi
#endif
  :: else
  fi
}

inline grant(who, token) {
  endKeeping();
  fence++; epoch++;
  owner = who; lapsed[who] = false;
  token = fence
}

inline acquire(me, token, h) {
  atomic {
    token = 0; called[me] = false; deputy[me] = false;
    if
    :: owner == me -> token = fence
    :: owner != me && kept == me -> grant(me, token)
    :: owner != me && kept != me && (owner != 0 || kept != 0) -> stand(me)
    :: owner == 0 && kept == 0 ->
       first(h);
       if
       :: h == 0 || h == me -> leave(me); grant(me, token)
       :: else -> stand(me); handOver(h); saw[me] = epoch
       fi
    fi;
    h = 0
  }
}

inline release(me, h) {
  atomic {
    if
#ifdef NO_OWNER_CHECK
    :: true -> handOver(h)
#else
    :: owner == me || kept == me -> handOver(h)
    :: else -> leave(me)
#endif
    fi;
    h = 0
  }
}

#define MAY_CRASH if :: atomic { crashes == 0 -> crashes++; dead[me] = true; gone++ }; goto ended :: skip fi

/* Alone, as long as his lease has not lapsed. */
#define CHECK assert(lapsed[me] || owner == me)

proctype client(byte me) {
  byte turns, token, h;
  bool wasAccepted;
  do
  :: turns < R ->
     do
     :: acquire(me, token, h);
        if
        :: token != 0 -> break
        :: else
        fi;
        MAY_CRASH;
        /* The deputy's call is for the moment when the key would have been fetched. */
        (called[me] || (deputy[me] && kept == 0))
     od;
     MAY_CRASH;
     atomic {
       CHECK;
       wasAccepted = false;
       if
#ifdef NO_FENCING
       :: true ->
#else
       :: token >= newest ->
#endif
          newest = token; writer = me; wasAccepted = true
       :: else
       fi
     };
     MAY_CRASH;
     atomic {
       CHECK;
       if
#ifdef NO_FENCING
       :: wasAccepted ->
#else
       :: wasAccepted && token >= newest ->
#endif
          assert(writer == me)
       :: else
       fi
     };
     release(me, h);
     turns++
  :: else -> break
  od;
  gone++;
ended:
  skip
}

active proctype time() {
end:
  do
  :: atomic { owner != 0 && dead[owner] -> owner = 0; wake() }
  :: atomic { owner != 0 && !dead[owner] && pauses < MAXP -> pauses++; lapsed[owner] = true; owner = 0; wake() }
  :: atomic { kept != 0 && dead[kept] -> endKeeping() }
  :: atomic { kept != 0 && !dead[kept] && lates < MAXK -> lates++; endKeeping() }
  :: gone == N -> break
  od
}

init {
  byte i = 1;
  atomic {
    do
    :: i <= N -> run client(i); i++
    :: else -> break
    od
  }
}
