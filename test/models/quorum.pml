/*
 * The lock on a quorum of independent stores: a ballot is the fencing token.
 *
 * Modelled: a client asks the stores, one client in one order and the other in the other; any request may be lost. It has the lock once a majority accepted its
 * ballot. A store accepts for one holder at a time, and no ballot that is not larger than all it accepted. Clocks are
 * skewed without bound: a client's ballot is any number larger than its own last one. A lease ends at the client, which
 * counts from before it asked, before it ends in any store; after that it lapses in each store at any time. One store may
 * restart and forget everything. It then is in quarantine: it does not vote until every lease that was running has
 * ended, and after that takes no ballot from before its restart (which takes bounds on how far a ballot may lie behind
 * and ahead of the store's clock, both together no longer than the quarantine).
 *
 * Left out: renewals (a majority again), who waits, withdrawn requests (they are lapses here).
 *
 * Must hold: no two clients have the lock at once; the token of a grant is larger than all that were granted before its
 * client began to ask.
 * Must be refuted: -DNO_QUARANTINE; -DNAIVE (each store counts for itself, and the largest of a majority is the token).
 */
#define STORES 3
#define MAJORITY 2
#define C 2
#define ATTEMPTS(me) (3 - me)
#define MOST 2 /* steps by which a ballot may be larger than the last one */

byte holder[STORES], ballot[STORES], oldest[STORES];
byte waitsFor[STORES]; /* in quarantine: the leases that were running, one bit each */
bool runs[C + 1], has[C + 1]; /* the lease, counted by its client; whether the client has the lock */
byte largestGranted, largestUsed, restarts;

#define IN_QUARANTINE(j) \
  (((waitsFor[j] & 1) != 0 && runs[1]) || ((waitsFor[j] & 2) != 0 && runs[2]))

#ifdef NAIVE
#define IS_NEWER(j, mine) true
#else
#define IS_NEWER(j, mine) (mine > ballot[j])
#endif

inline ask(me, mine, acks, token) {
  atomic {
    if :: me == 1 -> j = asked :: else -> j = STORES - 1 - asked fi;
    asked++;
    if
    :: !IN_QUARANTINE(j) && holder[j] == 0 && mine > oldest[j] && IS_NEWER(j, mine) ->
       waitsFor[j] = 0;
       holder[j] = me;
       acks++;
#ifdef NAIVE
       ballot[j]++;
       if :: ballot[j] > token -> token = ballot[j] :: else fi
#else
       ballot[j] = mine;
       token = mine
#endif
    :: else
    fi;
    j = 0
  }
}

proctype client(byte me) {
  byte attempts, mine, acks, asked, token, before, step, j;
  do
  :: attempts < ATTEMPTS(me) ->
     atomic {
       attempts++;
       select(step : 1 .. MOST);
       mine = ((mine / C) + step) * C + me;
       if :: mine > largestUsed -> largestUsed = mine :: else fi;
       acks = 0; asked = 0; token = 0; before = largestGranted;
       runs[me] = true
     };
     do
     :: asked < STORES -> ask(me, mine, acks, token)
     :: asked < STORES -> asked++ /* the request is lost */
     :: atomic {
          acks >= MAJORITY && runs[me] ->
          assert(!has[3 - me]);
          assert(token > before);
          has[me] = true;
          if :: token > largestGranted -> largestGranted = token :: else fi
        };
        break
     :: asked == STORES -> break
     od;
     /* It is given back, or the lease ends. Asking again, the client is somebody else to the stores: its old marks lapse. */
     atomic { has[me] = false; runs[me] = false; acks = 0; asked = 0; token = 0; before = 0 };
     atomic { holder[0] != me && holder[1] != me && holder[2] != me }
  :: else -> break
  od
}

/* The lease of who still asks may end as well; in a store it lapses only after it has ended at the client. */
active proctype time() {
  byte j;
end:
  do
  :: atomic { runs[1] && !has[1] -> runs[1] = false }
  :: atomic { runs[2] && !has[2] -> runs[2] = false }
  :: atomic { holder[0] != 0 && !runs[holder[0]] -> holder[0] = 0 }
  :: atomic { holder[1] != 0 && !runs[holder[1]] -> holder[1] = 0 }
  :: atomic { holder[2] != 0 && !runs[holder[2]] -> holder[2] = 0 }
  :: atomic {
       restarts == 0 ->
       restarts++;
       holder[1] = 0; ballot[1] = 0;
#ifndef NO_QUARANTINE
       waitsFor[1] = runs[1] + 2 * runs[2];
       oldest[1] = largestUsed
#endif
     }
  od
}

init { atomic { run client(1); run client(2) } }
