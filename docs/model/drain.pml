/*
 * Drain (P24; docs/control.md): path 0 is taken out of use while it is healthy. The administrator's word reaches the two ends at any
 * time, in either order, and so may the word that takes it back. Parts and control writes go where they went: over any path that is up, a
 * drained one as well. New is that S ends an incarnation without a fault, and that an end refuses a path that would return. Without DRAIN nothing
 * of this exists.
 */
#ifdef DRAIN
byte drainR, drainS;    /* 0: nothing heard; 1: drained; 2: not any more */
bool undrains;          /* whether the word is taken back */
bool drainEnd[NL];      /* S ended it as drained */
#define OF_DRAINED(l) ((l) % NP == 0)
#define DRAINED(l) (OF_DRAINED(l) && drainS == 1)

/* S: up, and not drained. */
#if NL > NP + 1
#define ELSEWHERE(st) (st[1] == UP || st[NP + 1] == UP)
#else
#define ELSEWHERE(st) (st[1] == UP)
#endif
/* S ends a drained incarnation when nothing is under way on it that it knows of, and work can go elsewhere. */
#ifdef NO_DRAIN_LAST
#define DRAIN_ENDS(l) (sSt[l] == UP && DRAINED(l) && DRAIN_QUIET(l))
#else
#define DRAIN_ENDS(l) (sSt[l] == UP && DRAINED(l) && DRAIN_QUIET(l) && ELSEWHERE(sSt))
#endif
#define live_on_drained(q) S_LIVE(q, l)
#ifdef NO_DRAIN_WAIT
#define DRAIN_QUIET(l) 1
#elif defined(ACCOUNT)
#define DRAIN_QUIET(l) (!ANY_PART(live_on_drained) && !wr[l])
#else
#define DRAIN_QUIET(l) (!ANY_PART(live_on_drained))
#endif
/* A drained path returns only to a connection that has no path at all. */
#ifdef NO_DRAIN_RETURN
#define MAY_RETURN(l, drained, st) (!OF_DRAINED(l) || drained != 1)
#else
#define MAY_RETURN(l, drained, st) (!OF_DRAINED(l) || drained != 1 || !ANY(st, == UP))
#endif
#define R_TAKES_BACK(l) MAY_RETURN(l, drainR, rSt)
#define S_TAKES_BACK(l) MAY_RETURN(l, drainS, sSt)
#define DRAINED_AWAY(l) DRAIN_ENDS(l)
#define REFUSED(l) (rSt[l] == OPENING && !S_TAKES_BACK(l)) /* R asks for it again and again */

proctype Administrator()
{
    do
    :: d_step { drainR == 0 -> drainR = 1 }
    :: d_step { drainS == 0 -> drainS = 1 }
    :: d_step { undrains && drainR == 1 -> drainR = 2 }
    :: d_step { undrains && drainS == 1 -> drainS = 2 }
    :: atomic { drainR > undrains && drainS > undrains -> break }
    od
}
inline start_drain()
{
    if
    :: undrains = 1
    :: undrains = 0
    fi;
    run Administrator()
}
#else
#define R_TAKES_BACK(l) 1
#define S_TAKES_BACK(l) 1
#define DRAINED_AWAY(l) 0
#define REFUSED(l) 0
#endif
