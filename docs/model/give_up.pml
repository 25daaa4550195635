/*
 * Give-up (P22) and abort (P27): an end without a path ends the connection with an error, and the faults may take every path; ABORT: NCCL aborts,
 * at any time. First nothing is posted any more and BYE with the ledger is said (P25), while what is under way still arrives; then the queue
 * pairs are in ERR, the registrations are taken away, and NCCL has its buffers back. The keys are used again at once, for memory at the same
 * place: a registration taken away refuses nothing. Where a queue pair does not get to ERR that step is never made. Without GIVE_UP nothing
 * of this exists.
 */
#ifdef GIVE_UP
#ifdef NO_GIVE_UP
#define NO_PATH(st) 0
#else
#define NO_PATH(st) (!ANY(st, == UP))
#endif
bool rAway, sAway;      /* the buffers are somebody else's */
#define R_AWAY rAway
/* The queue pair is in ERR: what comes is dropped, and never answered. */
#ifdef NO_ABORT_ERR
#define LAND(q, l) land(q, l)
/* What S's NIC repeats it reads again, and R would take it for the message. */
#define SOURCE_IS_THERE (!sAway || rGone)
#else
#define LAND(q, l) if :: rAway -> broke[l] = 1 :: else -> land(q, l) fi
#define SOURCE_IS_THERE 1 /* what is in the fabric was read before */
#endif
#define NOT_SOFT(l) (l >= NL || !R_SOFT(l))
#define AT_REST_GONE(l) ((rGone || sGone) && !fab[l] && !nic[l] && !mem[l])

/* BYE(abort) of R: what is in its ledger is done, for the rest S ends as well. */
inline s_hears_bye()
{
    tmp = 0;
    do
    :: tmp < NM && FULL(led, tmp) -> tmp++
    :: else -> break
    od;
#ifdef NO_BYE_LEDGER
    tmp = seen;
#endif
    s_acked(tmp);
    sLed = sLed | led;
    tmp = 0;
    if
    :: sack < NM -> sGone = 1
    :: else
    fi
}
proctype Ends()
{
    do
    :: d_step { !rGone && rdone < NM && ((ABORT & 1) || NO_PATH(rSt)) -> rGone = 1 }
    :: d_step { !sGone && sack < NM && ((ABORT & 2) || NO_PATH(sSt)) -> sGone = 1 }
    :: d_step { rGone && !rAway && NOT_SOFT(0) && NOT_SOFT(1) && NOT_SOFT(2) && NOT_SOFT(3) -> rAway = 1 }
    :: d_step { sGone && !sAway -> sAway = 1 }
#ifndef NO_BYE
    :: d_step { rGone && !sGone && sack < NM -> s_hears_bye() }
    :: d_step { sGone && !rGone && rdone < NM -> rGone = 1 }
#endif
    :: atomic { ALL_DONE -> break }
    od
}
#else
#define LAND(q, l) land(q, l)
#define AT_REST_GONE(l) 0
#define R_AWAY 0
#define SOURCE_IS_THERE 1
#endif
