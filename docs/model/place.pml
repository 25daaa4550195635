/*
 * Switching together (docs/collectives.md): a leader has all ranks use another communicator from
 * one operation on, or none of them. plugin/place/place_leader.c and place_member.c.
 *
 * NR ranks, NA attempts, each to a communicator of its own, NO operations. A message is a fact that
 * a rank may take now, later, several times or never: the channel loses, repeats and reorders. An
 * offer can come at any time once it was made, a decision as long as the leader repeats it, and
 * LATER times in all another time, of whichever attempt (without a bound no end would be found:
 * what may come need not).
 *
 * Never: two ranks use different communicators for one operation. At the end: no rank waits.
 *
 * One rule off: HALF (the leader commits when one rank agrees), LATE (a rank agrees to an operation
 * that has begun), EAGER (no operation waits for a decision), RUSH (the next attempt begins before
 * all have confirmed), FORGET (a newer offer takes the place of one that is
 * decided and not reached), OVERTAKE (an abort before its offer is not remembered). REACH: that a
 * switch is ever used.
 */
#ifndef NR
#define NR 2
#endif
#ifndef NA
#define NA 2
#endif
#ifndef NO
#define NO 3
#endif
#ifndef LATER
#define LATER 2
#endif
#define NOBODY 99

mtype = { FREE, PREPARED, COMMITTED, UNDECIDED, COMMIT, ABORT };

typedef rank_t {
    mtype state;
    byte attempt, now, to, begun, at;
    bool agreed;
    bool yes[NA + 1], done[NA + 1];
};
rank_t rank[NR];
bool offered[NA + 1];
byte at[NA + 1], used[NO];
mtype decision[NA + 1];
byte current, later;

#if NR == 3
#define HAVE_CONFIRMED(x) (rank[0].done[x] && rank[1].done[x] && rank[2].done[x])
#define HAVE_ALL_AGREED(x) (rank[0].yes[x] && rank[1].yes[x] && rank[2].yes[x])
#else
#define HAVE_CONFIRMED(x) (rank[0].done[x] && rank[1].done[x])
#define HAVE_ALL_AGREED(x) (rank[0].yes[x] && rank[1].yes[x])
#endif
#ifdef HALF
#define HAVE_AGREED(x) rank[0].yes[x]
#else
#define HAVE_AGREED(x) HAVE_ALL_AGREED(x)
#endif

proctype leader()
{
    byte a = 1, i, k;

    do
    :: a > NA -> break
    :: else ->
        atomic {
            k = 0;
            do
            :: k < NO - 1 -> k++
            :: break
            od;
            at[a] = k;
            current = a;
            offered[a] = true;
        }
        if
        :: atomic { HAVE_AGREED(a) -> decision[a] = COMMIT }
        :: decision[a] = ABORT /* somebody refused, or it took too long */
        fi;
#ifndef RUSH
        HAVE_CONFIRMED(a);
#endif
        a++
    od
}

#ifdef FORGET
#define IS_OPEN_TO_OFFERS true
#else
#define IS_OPEN_TO_OFFERS (rank[r].state == FREE)
#endif
#ifdef LATE
#define IS_IN_TIME(x) true
#else
#define IS_IN_TIME(x) (rank[r].begun <= at[x])
#endif
/* Answered once; what comes while an older one is open is not remembered. */
#define OFFER(x)                                                                                   \
    atomic {                                                                                       \
        offered[x] && x > rank[r].attempt && IS_OPEN_TO_OFFERS ->                                  \
        rank[r].attempt = x;                                                                       \
        if                                                                                         \
        :: IS_IN_TIME(x) ->                                                                        \
            rank[r].agreed = true;                                                                 \
            rank[r].to = x;                                                                        \
            rank[r].at = at[x];                                                                    \
            rank[r].state = PREPARED;                                                              \
            rank[r].yes[x] = true                                                                  \
        :: rank[r].agreed = false                                                                  \
        fi                                                                                         \
    }

#ifdef EAGER
#define WAITS false
#else
#define WAITS (rank[r].state == PREPARED && rank[r].begun == rank[r].at)
#endif

/* Of an attempt not agreed to only an abort can be decided; a late offer of it is stale then. */
inline take() {
    if
    :: a > rank[r].attempt ->
        assert(decision[a] == ABORT);
#ifndef OVERTAKE
        rank[r].attempt = a;
        rank[r].agreed = false;
#endif
        rank[r].done[a] = true
    :: a == rank[r].attempt ->
        assert(decision[a] == ABORT || rank[r].agreed);
        if
        :: rank[r].state == PREPARED && decision[a] == COMMIT -> rank[r].state = COMMITTED
        :: rank[r].state == PREPARED && decision[a] == ABORT -> rank[r].state = FREE
        :: else -> skip
        fi;
        rank[r].done[a] = true
    :: else -> rank[r].done[a] = true
    fi
}
#define IS_TAKEN(x)                                                                                \
    (decision[x] != UNDECIDED && !(x > rank[r].attempt && rank[r].state == PREPARED))
#define AGAIN(x) atomic { later > 0 && IS_TAKEN(x) -> later--; a = x; take() }

proctype member(byte r)
{
    byte a;

    do
    :: OFFER(1)
#if NA > 1
    :: OFFER(2)
#endif
#if NA > 2
    :: OFFER(3)
#endif
    /* a decision */
    :: atomic { current > 0 && IS_TAKEN(current) && !rank[r].done[current] -> a = current; take() }
    :: AGAIN(1)
#if NA > 1
    :: AGAIN(2)
#endif
#if NA > 2
    :: AGAIN(3)
#endif
    /* an operation */
    :: atomic {
        rank[r].begun < NO && !WAITS ->
        if
        :: rank[r].state == COMMITTED && rank[r].begun == rank[r].at ->
            rank[r].now = rank[r].to;
            rank[r].state = FREE
        :: else -> skip
        fi;
        a = rank[r].begun;
        assert(used[a] == NOBODY || used[a] == rank[r].now);
        used[a] = rank[r].now;
#ifdef REACH
        assert(rank[r].now == 0);
#endif
        rank[r].begun++
       }
    :: atomic {
        rank[r].begun == NO && rank[r].state == FREE && current == NA && rank[r].done[NA] -> break
       }
    od
}

init {
    byte i;

    atomic {
        for (i : 0 .. NA) { decision[i] = UNDECIDED }
        for (i : 0 .. NO - 1) { used[i] = NOBODY }
        later = LATER;
        for (i : 0 .. NR - 1) { rank[i].state = FREE; run member(i) }
        run leader()
    }
}
