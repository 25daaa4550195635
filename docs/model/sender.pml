/* S: CTS, posts, acknowledgements, what is posted again. */

/* What cannot make a difference any more is forgotten, so that states that are alike are one. */
inline s_forget()
{
    idx = 0;
    do
    :: idx < NL ->
        ring[idx] = ring[idx] & ~BELOW(seen);
#if !defined(WATCH) && !defined(RINGS)
        ctsFab[idx] = ctsFab[idx] & ~BELOW(seen);
        if
        :: ackFab[idx] <= sack -> ackFab[idx] = 0
        :: else
        fi;
#endif
        idx++
    :: else -> break
    od;
    idx = 0
}

/* isend for message m, whose CTS was taken. With groups it comes in any order within the oldest group (match by tag). */
inline s_isend(m)
{
    own[2 * (m)] = UNPOSTED;
    if
    :: (CUT >> (m)) & 1 -> own[2 * (m) + 1] = UNPOSTED
    :: else
    fi
}
#define STARTED(m) (own[2 * (m)] != IDLE)

/* Posts part q. What is posted on an incarnation that R has fenced hard arrives nowhere. */
inline post(q, l)
{
    own[q] = ON(l);
#ifdef ACCOUNT
    wr[l] = wr[l] | BIT(q);
#endif
#if ADAPTIVE
    if
    :: PAIR(q, l) -> post_data(q, l); post_record(q, RECORD_INC(l))
    :: !PAIR(q, l) && rSt[l] == FENCED && !R_SOFT(l) && !OPEN_AFTER_FENCE -> skip
    :: else -> fab[l] = fab[l] | BIT(q)
    fi
#else
    if
    :: rSt[l] == FENCED && !R_SOFT(l) && !OPEN_AFTER_FENCE -> skip
    :: else -> fab[l] = fab[l] | BIT(q)
    fi
#endif
}

/* Incarnations that are up and have room for part q (P2). */
inline s_room(q, where)
{
    where = 0;
    idx = 0;
    do
    :: idx < NL ->
#if RQ < 2 * NM
        parts = 0;
        pick = 0;
        do
        :: pick < NQ && TAKES_ROOM(pick, idx) -> parts++; pick++
        :: pick < NQ && !TAKES_ROOM(pick, idx) -> pick++
        :: else -> break
        od;
        pick = 0;
#endif
        if
        :: sSt[idx] == UP && parts < RQ - ((OF(q) == sack) -> 0 : RESERVE) -> where = where | BIT(idx)
        :: else
        fi;
        idx++
    :: else -> break
    od;
    idx = 0;
    parts = 0
}

inline s_unposted(todo)
{
    idx = 0;
    do
    :: idx < NQ ->
        if
        :: own[idx] == UNPOSTED -> todo = todo | BIT(idx)
        :: else
        fi;
        idx++
    :: else -> break
    od;
    idx = 0
}

/* Takes the CTS that are there, posts what is unposted: lowest first, any part on any path (P1). Arguments as in r_progress. */
inline s_progress(todo, where, pick)
{
    d_step {
        do
        :: seen < NM && ANY(ring, & BIT(seen)) ->
#ifndef LAZY
            s_isend(seen);
#endif
            seen++
        :: else -> break
        od;
        s_forget();
        if
        :: S_GONE
        :: else -> s_unposted(todo)
        fi
    }
    do
    :: todo ->
        d_step {
            lowest(todo, tmp);
            s_room(tmp, where)
        }
        if
        :: where ->
            any_inc(where, pick);
#if ADAPTIVE
            d_step { lowest(todo, tmp); where = tmp + 1; tmp = 0 }
            post_or_fail(where - 1, pick);
            pick = 0
#else
            d_step {
                lowest(todo, tmp);
                post(tmp, pick);
                tmp = 0;
                pick = 0
            }
#endif
        :: else
        fi;
        NEXT_PART;
        where = 0
    :: else -> break
    od
}

inline s_acked(v)
{
    do
    :: sack < (v) ->
        assert(wrong_message || STARTED(sack));
        IS_WRITTEN(PARTS(sack));
        assert(false_success || FULL(led, sack));
        own[2 * sack] = HAVE;
        own[2 * sack + 1] = HAVE;
        sLed = sLed | PARTS(sack);
        sack++
    :: else -> break
    od
}

/* The ledger in FENCED: what it has need not be posted; what it lacks and this incarnation carried last is posted again (P21). */
inline s_take_up(l, ledger)
{
    tmp = 0;
    do
    :: tmp < NM && FULL(ledger, tmp) -> tmp++
    :: else -> break
    od;
#ifndef NO_LEDGER
    s_acked(tmp);
    IS_WRITTEN(ledger);
    sLed = sLed | (ledger);
#endif
    idx = 0;
    do
    :: idx < NQ ->
        if
        :: (sLed & BIT(idx)) && RQ >= NQ -> own[idx] = HAVE
        :: UNPOST(idx, l) && !(sLed & BIT(idx)) ->
#ifdef NO_E2E_ACK
            assert(lost_data || !FULL(early, OF(idx)));
#endif
#ifdef DRAIN
            assert(retransmitted || !drainEnd[l]);
#endif
            SEEN_REPLAY;
            own[idx] = UNPOSTED
        :: else
        fi;
        idx++
    :: else -> break
    od;
    idx = 0;
    tmp = 0;
#ifndef NO_FULL_INC
#ifdef WORD
    live[l] = live[l] & ~snap[l];
#endif
    snap[l] = 0;
#endif
    sSettled[l] = 1;
#if NL == NP && !defined(SOFT_R)
    rSettled[l] = 1 /* nothing depends on when R hears of it */
#endif
}

/* What R writes on this incarnation is not looked at any more; S's work requests are accounted for, unless the fence is soft (P19). */
inline s_close(l)
{
    if
    :: sSt[l] == UP -> STOPS(l) skip /* else it has stopped before */
    :: else
    fi;
    sSt[l] = FENCED;
#ifdef WATCH
    if
    :: ctsFab[l] || ackFab[l] -> lostCtl[l] = 1
    :: else
    fi;
#endif
    ctsFab[l] = 0;
    ackFab[l] = 0;
#ifndef RINGS
    ring[l] = 0;
#endif
#ifdef ACCOUNT
    if
    :: !S_SOFT(l) -> wr[l] = 0
    :: else
    fi;
    cqe[l] = 0
#endif
}
inline s_never(l)
{
    s_close(l);
    sSettled[l] = 1
}
