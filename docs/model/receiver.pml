/* R: ledger, CTS and acknowledgements, the end of an incarnation. Every inline is one step, or (progress) the rest of one. */

/* S's fence lets nothing in any more: what is written after it is lost at once. */
inline lost_if_fenced(l)
{
#ifdef WATCH
    if
    :: sSt[l] == FENCED -> lostCtl[l] = 1
    :: else
    fi
#else
    skip
#endif
}
#ifdef RINGS
#define ACK_USEFUL 1
#else
#define ACK_USEFUL (acked > sack)
#endif
inline write_ack(l)
{
    told[l] = acked;
    lost_if_fenced(l);
    if
    :: sSt[l] != FENCED && ACK_USEFUL && acked > ackFab[l] -> ackFab[l] = acked
    :: else
    fi
}
#if defined(WATCH) || defined(RINGS)
#define USEFUL(m) 1         /* a CTS that S has from elsewhere makes a difference by getting lost, or by the slot that it lands in */
#else
#define USEFUL(m) (m >= seen)
#endif
/* A CTS carries acked. When it is written again it does not count as having told it (P14). */
inline write_cts(m, l)
{
    if
    :: cts[m] == NEW -> write_ack(l)
    :: else -> lost_if_fenced(l)
    fi;
    cts[m] = ON(l);
    if
    :: sSt[l] != FENCED && USEFUL(m) -> ctsFab[l] = ctsFab[l] | BIT(m)
    :: else
    fi
}
/* NCCL's side: test reports done in order, irecv posts. A group is reported and posted as one. */
#define R_CAN_TEST (!R_GONE && rdone + G <= acked && !HELD(rdone) && !(G > 1 && HELD(rdone + G - 1)) && FLUSHED)
#define R_CAN_POST (!R_GONE && rpost + G <= NM && rpost + G <= rdone + W && ANY(rSt, == UP))
inline r_test()
{
#ifdef GPU
    assert(unwritten || FULL(written, rdone));
#endif
    rdone = rdone + G
#if defined(GPU) && !defined(FLUSH)
    ;
    idx = 0;
    do
    :: idx < NL -> came[idx] = came[idx] & ~BELOW(2 * rdone); idx++
    :: else -> break
    od;
    idx = 0
#endif
}
inline r_irecv()
{
    tmp = 0;
    do
    :: tmp < G ->
        cts[rpost] = NEW;
#if defined(SOFT_R) && !defined(NO_HOLD) && !defined(NO_HOLD_LATER)
        idx = 0; /* S may answer the CTS over an incarnation that R has closed softly */
        do
        :: idx < NL && rSoft[idx] && !stopped[idx] -> hold[idx] = hold[idx] | BIT(rpost); idx++
        :: idx < NL && !(rSoft[idx] && !stopped[idx]) -> idx++
        :: else -> break
        od;
        idx = 0;
#endif
        rpost++;
        tmp++
    :: else -> break
    od;
    tmp = 0
}

/* Messages whose CTS is to be written, and the incarnations it can go over. */
inline r_owes(todo, where)
{
    idx = 0;
    do
    :: idx < NM ->
        if
        :: FULL(led, idx) -> cts[idx] = IDLE
        :: cts[idx] == NEW || cts[idx] == OWED -> todo = todo | BIT(idx)
        :: else
        fi;
        idx++
    :: else -> break
    od;
    idx = 0;
    do
    :: idx < NL ->
        if
        :: rSt[idx] == UP -> where = where | BIT(idx)
        :: else
        fi;
        idx++
    :: else -> break
    od;
    idx = 0;
    if
    :: !where || R_GONE -> todo = 0
    :: else
    fi
}
/* P14: more is complete than the largest value written on an incarnation that is up. */
inline r_owes_ack(todo)
{
#ifndef NO_LONE_ACK
    tmp = 0;
    idx = 0;
    do
    :: idx < NL ->
        if
        :: told[idx] > tmp -> tmp = told[idx]
        :: else
        fi;
        idx++
    :: else -> break
    od;
    idx = 0;
    todo = (acked > tmp && !R_GONE);
    tmp = 0
#else
    skip
#endif
}

/*
 * What follows at once from a new ledger, a path lost or won: done, new receives, CTS, the acknowledgement that no CTS carries.
 * The three arguments are the caller's temporaries, 0 before and after.
 */
inline r_progress(todo, where, pick)
{
    d_step {
        do
        :: acked < rpost && FULL(led, acked) -> acked++
        :: else -> break
        od;
#ifndef LAZY
        do
        :: R_CAN_TEST -> r_test()
        :: else -> break
        od;
        do
        :: R_CAN_POST -> r_irecv()
        :: else -> break
        od;
#endif
        r_owes(todo, where)
    }
    do
    :: todo ->
        any_inc(where, pick);
        d_step {
            lowest(todo, idx);
            write_cts(idx, pick);
            todo = todo & (todo - 1);
            idx = 0;
            pick = 0
        }
    :: else -> break
    od;
    todo = 0;
    d_step { r_owes_ack(todo) }
    if
    :: todo && where -> any_inc(where, pick); d_step { write_ack(pick); pick = 0 }
    :: else
    fi;
    todo = 0;
    where = 0
}

/* Completions that R polls: new, and of messages whose receives are posted and not reported done. */
inline r_take(mask)
{
    assert(duplicate_completion || !(led & (mask)));
    assert(wrong_message || ((mask) & BELOW(2 * rdone)) == 0);
    assert(wrong_message || ((mask) & ~BELOW(2 * rpost)) == 0);
#ifdef SEQ_MOD /* the immediate names the one seq from rdone on that has these low bits (P8) */
    assert(wrong_message || ((mask) & ~BELOW(2 * (rdone + SEQ_MOD))) == 0);
#endif
    led = led | ((mask) & VALID)
}

/* Completions of incarnation l: with P34 they are seen, and in the ledger when their read is back. */
inline r_arrive(mask, l)
{
#ifdef FLUSH
    assert(duplicate_completion || !((mask) & (led | ANY_UNREAD)));
    assert(wrong_message || ((mask) & BELOW(2 * rdone)) == 0);
    unread[l] = unread[l] | (mask)
#else
#ifdef GPU
    came[l] = came[l] | (mask);
#endif
    r_take(mask)
#endif
}
inline r_poll(l)
{
    r_arrive(mem[l], l);
    mem[l] = 0;
#if ADAPTIVE
    r_poll_records(l)
#endif
}

/* The incarnation is over. Its CTS are owed again, its acknowledgements do not count (P11, P14). */
inline r_down(l)
{
    rSt[l] = DOWN;
#ifndef NO_ACK_AGAIN
    told[l] = 0;
#endif
    NEW_EPOCH;
#ifndef NO_CTS_REWRITE
    idx = 0;
    do
    :: idx < NM && cts[idx] == ON(l) -> cts[idx] = OWED; idx++
    :: idx < NM && cts[idx] != ON(l) -> idx++
    :: else -> break
    od;
    idx = 0
#endif
}
/* R closes the incarnation: from here none of its completions enters the ledger, and that ledger is what FENCED says. */
inline r_close(l)
{
    POLL_LAST(l);
    rSt[l] = FENCED;
    snap[l] = led;
    after_close(l)
}
/* ... without proof that nothing of it reaches memory any more: what is open is held (P18). */
inline r_close_soft(l)
{
    r_close(l);
#ifndef NO_HOLD
    idx = rdone;
    do
    :: idx < rpost && !FULL(led, idx) -> hold[l] = hold[l] | BIT(idx); idx++
    :: idx < rpost && FULL(led, idx) -> idx++
    :: else -> break
    od;
    idx = 0
#endif
}
#ifdef WORD
inline r_word(l)
{
    idx = rdone;
    do
    :: idx < rpost && NEEDLESS(idx, l) -> hold[l] = hold[l] & ~BIT(idx); idx++
    :: idx < rpost && !NEEDLESS(idx, l) -> idx++
    :: else -> break
    od;
    idx = 0;
    SEEN_FREE(l)
}
#endif
/* An incarnation that never stood: nothing was posted on it. Should S think it stood, this is the ledger it gets. */
inline r_never(l)
{
    rSt[l] = FENCED;
    rSettled[l] = 1;
    snap[l] = led
}
