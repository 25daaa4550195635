/*
 * Close (P25, P26): one connection whose data is one step, the out-of-band channel (OOB), and what either process still knows of the
 * connection. Records are facts, as in failover.pml, but they can be heard only while the OOB channel works.
 * T_linger and T_give_up are longer than any silence of a channel that is not lost: they end only in a silence.
 */
hidden byte lost_transfer, false_success;

#define WORKS 0
#define SILENT 1
#define LOST 2          /* for ever */
byte oob = WORKS;
byte silences = 2;      /* how often it falls silent */
bool killed;            /* R's process */
bool lingered;          /* an end dropped what it knew, or gave up, because nothing was heard for too long */

/* R */
bool has;               /* everything is in the ledger */
bool rClosed, rAbort;   /* NCCL has closed R's end; before it had everything */
bool rBye;              /* S's BYE was heard */
bool rByeOk;            /* ... R's own was answered */
bool rFreed;            /* R's process does not know the connection any more */
bool rError;

/* in band */
bool ack;               /* under way */
bool pathDown;

/* S */
bool done, sError;
bool sBye;              /* R's BYE was heard */
bool sClosed, sByeOk, sFreed;
bool asked;             /* S said DOWN: it wants the ledger */
bool fenced, fencedHas; /* R said FENCED, with this ledger */
bool gone;              /* R's process said that it does not know the connection */

#define HEAR (oob == WORKS)
#define R_SAYS_BYE (rClosed && !killed)
#define TOMBSTONE_ENDS (rByeOk || (oob != WORKS && !NO_BOUND) || DROPS_EARLY)
#ifdef NO_LINGER_BOUND
#define NO_BOUND 1
#else
#define NO_BOUND 0
#endif
#ifdef NO_TOMBSTONE
#define DROPS_EARLY 1
#else
#define DROPS_EARLY 0
#endif

inline success()
{
    assert(false_success || has);
    done = 1
}
/* An error is right when R did not take everything, is gone, or was out of reach for too long. */
inline failure()
{
    assert(lost_transfer || rAbort || killed || lingered);
    sError = 1
}

active proctype R()
{
    do
    /* retransmissions over other paths are part of this step */
    :: d_step { !has && !rClosed && !sClosed && !killed -> has = 1; ack = !pathDown }
    :: d_step { !rClosed && has -> rClosed = 1 }
    :: d_step { !rClosed && !has -> rClosed = 1; rAbort = 1 }
    :: d_step { HEAR && sClosed && !rBye -> rBye = 1; rError = !has }
    :: d_step { HEAR && asked && !rFreed && !killed && !(fenced && fencedHas == has) -> fenced = 1; fencedHas = has }
    :: d_step { HEAR && asked && rFreed && !gone -> gone = 1 }
    /* BYE_OK: from S when it has heard BYE, or from a process that does not know the connection */
    :: d_step { HEAR && rClosed && !rByeOk && (sBye || sFreed) -> rByeOk = 1 }
    :: d_step { rClosed && !rFreed && TOMBSTONE_ENDS -> lingered = lingered || (!rByeOk && oob != WORKS); rFreed = 1; ack = 0 }
    :: d_step { killed && !rFreed -> rFreed = 1; rClosed = 1; ack = 0 }
    :: atomic { rFreed && sFreed -> break }
    od
}

active proctype S()
{
    do
    :: d_step { ack && !done && !sError -> ack = 0; success() }
    :: d_step { pathDown && !done && !sError && !asked -> asked = 1 }
    :: d_step { HEAR && fenced && fencedHas && !done && !sError -> success() }
    :: d_step {
        HEAR && R_SAYS_BYE && !sBye && !sFreed && !(rFreed && rByeOk) ->
        sBye = 1;
        if
#ifdef NO_BYE_LEDGER
        :: !done && !sError -> success()
#else
        :: !done && !sError && has -> success()
        :: !done && !sError && !has -> failure()
#endif
        :: else
        fi
       }
    :: d_step { HEAR && gone && !sBye && !sClosed && !sError -> failure() } /* also when all is done: NCCL's next call fails */
    :: d_step { HEAR && killed && !done && !sError -> failure() }
    :: d_step { oob != WORKS && !done && !sError && pathDown -> lingered = 1; failure() } /* T_give_up */
    :: d_step { (done || sError) && !sClosed -> sClosed = 1 }
    :: d_step { HEAR && sClosed && !sByeOk && (rBye || rFreed || killed) -> sByeOk = 1 }
    :: d_step { sClosed && !sFreed && (sByeOk || oob != WORKS) -> sFreed = 1 }
    :: atomic { rFreed && sFreed -> break }
    od
}

active proctype World()
{
    bool kills;

    if
    :: kills = 1
    :: kills = 0
    fi;
    do
    :: d_step { !pathDown -> pathDown = 1; ack = 0 }
    :: d_step { oob == WORKS && silences > 0 -> oob = SILENT; silences-- }
    :: d_step { oob == SILENT -> oob = WORKS }
    :: d_step { oob == SILENT -> oob = LOST }
    :: d_step { kills && !killed && !rFreed -> killed = 1 }
    :: atomic { rFreed && sFreed -> break }
    od
}
