/*
 * Give-up (P22) and abort (P27): an end without a path ends the connection with an error, and the faults may take every path; ABORT: NCCL aborts,
 * at any time. NCCL takes the registrations away, closes (BYE with the ledger, P25) and has its buffers back: one step here, since between
 * the error and that step the connection goes on as it did before. Without GIVE_UP nothing of this exists.
 */
#ifdef GIVE_UP
#ifdef NO_GIVE_UP
#define NO_PATH(st) 0
#else
#define NO_PATH(st) (!ANY(st, == UP))
#endif
/* The registration is away: the NIC refuses the write, the queue pair is over. */
#ifdef NO_DEREG
#define LAND(q, l) land(q, l)
#else
#define LAND(q, l) if :: rGone -> broke[l] = 1 :: else -> land(q, l) fi
#endif
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
#endif
