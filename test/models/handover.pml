/*
 * A grant that passes from caller to caller within a process: lib/core/waiting/wait-queue.ts, tenure.ts, grant.ts and holdings.ts.
 *
 * Modelled: two processes with callers in line. The store grants a key with a block of TURNS tokens, of which each caller
 * takes the next one; on the last ones the process asks for MORE, which the store gives if nobody else waits. When a
 * caller is done, the next of the same process has the grant at once, as long as there are tokens; or else it is given
 * back, and the store keeps it for the other process if that waits. A lease may end at any time: first in the process, to
 * whose callers the grant is then lost, then in the store. The others of its line ask the store again.
 *
 * Left out: that a tenure also ends after 200 ms (it ends here by its tokens alone), renewals, several keys.
 *
 * Must hold: whoever works in time works alone; tokens grow from turn to turn, through both processes; while one process
 * waits in the store, the other has no more turns than TURNS + MORE; nobody waits for ever (no invalid end state).
 * Must be refuted: -DONE_TOKEN (the store takes up one token for the whole block), -DFOR_EVER (a grant passes on without
 * tokens), -DKEEPS_LOST (a lost grant passes on).
 */
#define TURNS 2
#define MORE 1
#define CALLERS 3 /* of each process */
#define MOST_LAPSES 2

byte holder, keptFor; /* at the store: a process, or 0 */
bool waits[3]; /* in the line of the store */
bool mayAsk[3]; /* called, or the lease of the other is over */
byte newest; /* the newest token taken up, at the store */
byte lastGiven; /* to a caller, in either process */
bool isOurs[3]; /* the grant, as the process knows it: until its validity ends */
byte works[3]; /* callers at work in time */
byte passedBy[3]; /* turns that the other process has had while this one waited */
byte lapses, done;

#define OTHER (3 - me)

inline callOther() {
  if
  :: waits[OTHER] -> waits[OTHER] = false; keptFor = OTHER; mayAsk[OTHER] = true
  :: else -> keptFor = 0
  fi
}

/* One caller has the grant now. */
inline deliver(token, left) {
  assert(works[1] + works[2] == 0);
  assert(token > lastGiven);
  lastGiven = token;
  token++;
  if
  :: left > 0 -> left--
  :: else
  fi;
  works[me]++;
  callers--;
  if
  :: waits[OTHER] -> passedBy[OTHER]++; assert(passedBy[OTHER] <= TURNS + MORE)
  :: else
  fi
}

proctype line(byte me) {
  byte callers = CALLERS, token, left;
  do
  :: callers > 0 ->
     /* Asks the store; in its line, it asks again when called. */
     do
     :: atomic {
          mayAsk[me] = false;
          if
          :: holder == 0 && (keptFor == 0 || keptFor == me) ->
             holder = me; keptFor = 0; waits[me] = false; passedBy[me] = 0;
             token = newest + 1; left = TURNS;
#ifdef ONE_TOKEN
             newest = newest + 1;
#else
             newest = newest + TURNS;
#endif
             isOurs[me] = true;
             deliver(token, left);
             break
          :: else -> waits[me] = true
          fi
        };
        mayAsk[me]
     od;
     do
     /* Nobody else waits, so there is more. */
     :: atomic {
          isOurs[me] && left <= MORE && callers > left && !waits[OTHER] && holder == me && left > 0 ->
#ifndef ONE_TOKEN
          if
          :: newest + 1 == token + left -> left = left + MORE; newest = newest + MORE
          :: else -> goto held
          fi
#else
          goto held
#endif
        }
     :: true -> goto held
     od;
held:
     do
     /* The caller is done in time. */
     :: atomic {
          isOurs[me] && works[me] == 1 ->
          works[me] = 0;
          if
#ifdef FOR_EVER
          :: callers > 0 -> deliver(token, left)
#else
          :: callers > 0 && left > 0 -> deliver(token, left)
#endif
          :: else ->
             isOurs[me] = false;
             if
             :: holder == me -> holder = 0; callOther()
             :: else
             fi;
             break
          fi
        }
     /* The lease has ended; he who had it knows. */
     :: atomic {
          !isOurs[me] ->
#ifdef KEEPS_LOST
          if
          :: callers > 0 && left > 0 -> deliver(token, left); works[me] = 0
          :: else
          fi;
#endif
          break
        }
     od
  :: else -> break
  od;
  done++
}

active proctype time() {
  byte me;
end:
  do
  :: atomic { isOurs[1] && lapses < MOST_LAPSES -> lapses++; isOurs[1] = false; works[1] = 0 }
  :: atomic { isOurs[2] && lapses < MOST_LAPSES -> lapses++; isOurs[2] = false; works[2] = 0 }
  /* In the store it ends later. Who was refused looks then. */
  :: atomic { holder == 1 && !isOurs[1] -> holder = 0; if :: waits[2] -> mayAsk[2] = true :: else fi; if :: waits[1] -> mayAsk[1] = true :: else fi }
  :: atomic { holder == 2 && !isOurs[2] -> holder = 0; if :: waits[1] -> mayAsk[1] = true :: else fi; if :: waits[2] -> mayAsk[2] = true :: else fi }
  :: done == 2 -> break
  od
}

init { atomic { run line(1); run line(2) } }
