/*
 * The failover protocol on one connection: sender S, receiver R, the incarnations of its paths. README.md has the bounds, what is left out and
 * what was checked; P... are the rules of docs/protocol.md.
 *
 * An incarnation has a process of its own, with every step that can happen to it: in the fabric, at R's NIC, at R, at S, between the two.
 * Control records are facts: once an end may say something, the other may hear it at any later time, in any order, or again.
 * That is loss, repetition, lateness and reordering at once. What a record says of its sender is read off the sender's state, because
 * states only grow; the ledger in FENCED is the one of the moment at which R closed the incarnation.
 *
 * NCCL's calls happen as soon as they can: the soonest reuse of a buffer is the worst case (with LAZY: at any later time).
 */
#include "state.pml"
#include "without.pml"
#include "adaptive.pml"
#include "gpu.pml"
#include "drain.pml"
#include "receiver.pml"
#include "sender.pml"
#include "give_up.pml"

/* Bytes of part q reach memory. The buffer must be its own still. */
inline place(q)
{
    assert(ghost_write || (OF(q) >= rdone && !R_AWAY))
#if ADAPTIVE || defined(GPU)
    ;
    written = written | BIT(q)
#endif
}
/* A part of incarnation l reaches memory. Its completion follows, unless the incarnation is closed. */
inline land(q, l)
{
#ifndef GPU /* data has a way of its own there */
    place(q);
#endif
    if
    :: CLOSED(l)
    :: else -> mem[l] = mem[l] | BIT(q)
    fi
}
/* P2: R's NIC has a receive for what arrives. R posts one again when it polls; what it has closed is no loss. */
inline take_receive(l)
{
#if RQ < 2 * NM
    parts = 0;
    idx = 0;
    do
    :: idx < NQ ->
        if
        :: (nic[l] | mem[l]) & BIT(idx) -> parts++
        :: else
        fi;
        idx++
    :: else -> break
    od;
    idx = 0;
    COUNT_RECORDS(l);
    assert(no_receive || rSt[l] == FENCED || parts < RQ);
    parts = 0
#else
    skip
#endif
}
/* R's NIC takes a part. S's NIC has read it from a buffer that NCCL has not got back. */
inline accept(q, l)
{
    take_receive(l);
    assert(changed_source || SOURCE_IS_THERE);
#ifdef ACCOUNT
    assert(changed_source || READS_NO_MORE(l) || !S_DONE(OF(q)) || OWN_REQUEST(q, l));
    cqe[l] = cqe[l] | (BIT(q) & wr[l]);
#endif
#ifdef GPU
    pcie[l] = pcie[l] | BIT(q);
#endif
#ifdef NIC_STAGE
    nic[l] = nic[l] | BIT(q)
#else
    LAND(q, l)
#endif
}

#ifdef WAYS
/* With all incarnations of path l, those that its ways broke before as well. */
inline nic_dies(l)
{
    idx = l;
    do
    :: idx < NL && rSt[idx] != NONE -> broke[idx] = 1; gone[idx] = 1; idx = idx + NP
    :: idx < NL && rSt[idx] == NONE -> idx = idx + NP
    :: else -> break
    od;
    idx = 0
}
#endif

#define ENDED(l) (rSt[l] == FENCED && rSettled[l] && !R_SOFT(l))
#define AT_REST(l) (((rSt[l] == sSt[l] && (sSt[l] == UP || sSt[l] == NONE)) || (ENDED(l) && S_FENCED(l) && sSettled[l] && !S_SOFT(l)) || \
                     (IS_NEXT(l) && (ENDED(l) || REFUSED(l)) && sSt[l] == NONE && !S_MAY_OPEN(l))) && !fab[l] && !nic[l] && !mem[l] && REST_QUIET(l))

proctype Incarnation(byte l)
{
    MASK todo;
    byte where, pick; /* temporaries, 0 between steps */

    do
    /* the fabric, R's NIC; RC keeps an order, which the model does not need */
    :: atomic {
        fab[l] && ENTERS(l) ->
        any_part(fab[l], pick);
        d_step { fab[l] = fab[l] & ~BIT(pick); accept(pick, l); pick = 0 }
       }
#ifdef NIC_STAGE
    :: atomic {
        nic[l] ->
        any_part(nic[l], pick);
        d_step { nic[l] = nic[l] & ~BIT(pick); LAND(pick, l); pick = 0 }
       }
#endif
#if ADAPTIVE
    :: atomic {
        dat[l] && ENTERS(l) ->
        any_part(dat[l], pick);
        d_step { dat[l] = dat[l] & ~BIT(pick); accept_data(pick, l); pick = 0 }
       }
    :: atomic {
        tail[l] && ENTERS(l) && BEHIND_DATA(l) ->
#ifdef NIC_STAGE
        d_step { accept_record(HEAD(tail[l]), l); push(tailNic[l], HEAD(tail[l])); idx = 0; tail[l] = tail[l] >> 4 }
       }
    :: atomic {
        tailNic[l] && AFTER_DATA(l) ->
        land_or_spoil(tailNic[l], l)
       }
#else
        land_or_spoil(tail[l], l)
       }
#endif
#endif
#ifdef APART
    :: atomic {
        pcie[l] ->
        any_part(pcie[l], pick);
        d_step { pcie[l] = pcie[l] & ~BIT(pick); place(pick); pick = 0 }
        AFTER_PLACE
       }
#endif
#ifdef FLUSH
    :: atomic {
        READ_BACK(l) && MAY_COUNT(l) ->
        any_part(READ_BACK(l), pick);
        d_step { unread[l] = unread[l] & ~BIT(pick); r_take(BIT(pick)); pick = 0 }
        r_progress(todo, where, pick)
       }
#ifdef READ_FAULT
    :: d_step { faults > 0 && !readless[l] && !broke[l] && rSt[l] == UP && ANOTHER -> readless[l] = 1; faults-- }
#endif
#endif
#ifdef GPU
    :: atomic {
        hold[l] && rSt[l] == FENCED && !R_SOFT(l) && !pcie[l] ->
        hold[l] = 0;
        r_progress(todo, where, pick)
       }
#endif

    /* faults, what they lose */
    :: d_step { faults > 0 && !broke[l] && rSt[l] != NONE && ANOTHER -> broke[l] = 1; faults-- }
    :: d_step { broke[l] && (fab[l] || PAIRS_IN_FABRIC(l)) -> fab[l] = 0; LOSE_PAIRS(l) }
    :: d_step {
        broke[l] && (ctsFab[l] || ackFab[l]) ->
        ctsFab[l] = 0;
        ackFab[l] = 0;
#ifdef WATCH
        lostCtl[l] = 1
#endif
       }
#ifdef WAYS
    :: d_step { nicDeaths > 0 && l < NP && !gone[l] && ANOTHER_NIC -> SEEN_DEATH(l); nic_dies(l); nicDeaths-- }
#elif FD > 0
    :: d_step { deaths > 0 && !broke[l] && rSt[l] != NONE && ANOTHER -> broke[l] = 1; dead[l] = 1; deaths-- }
#endif
#if FD > 0
    :: atomic {
        dead[l] && (nic[l] || mem[l] || LOSES_MORE(l)) ->
        d_step { SEEN_LOSS(l); nic[l] = 0; mem[l] = 0; lose_more(l) } /* in memory without a completion is the same to R */
        AFTER_PLACE
       }
#endif

#if FS > 0
#ifndef WAYS
    :: d_step { sDeaths > 0 && !broke[l] && rSt[l] != NONE && ANOTHER -> broke[l] = 1; sDead[l] = 1; sDeaths-- }
#endif
    :: d_step { sDead[l] && (ctsFab[l] || ackFab[l]) -> ctsFab[l] = 0; ackFab[l] = 0 } /* R holds them for confirmed */
    /* P15: S asks for a CTS that does not come, for an acknowledgement of what it has posted; R says it again on all paths */
#ifndef NO_CTS_REQUEST
    :: d_step {
        rSt[l] == UP && !broke[l] && seen < rpost && !FULL(led, seen) && !(ctsFab[l] & BIT(seen)) ->
        ctsFab[l] = ctsFab[l] | BIT(seen);
        cts[seen] = ON(l)
       }
#endif
#ifndef NO_TELL
#define on_any_inc(q) (own[q] >= ON(0) && !(sLed & BIT(q)))
#define S_WAITS ANY_PART(on_any_inc)
    :: d_step { rSt[l] == UP && !broke[l] && sack < acked && ackFab[l] < acked && S_WAITS -> write_ack(l) }
#endif
#endif

    /* R polls; a CTS or an acknowledgement reaches S, the oldest CTS first: a younger one is of no use before it */
    :: atomic {
        (mem[l] || RECORDS_POLLABLE(l)) && (rSt[l] == UP || (rSt[l] == FENCED && !CLOSED(l))) ->
        d_step { SEEN_ARRIVAL(l); r_poll(l) }
        r_progress(todo, where, pick)
       }
    :: atomic {
        ctsFab[l] && sSt[l] != NONE ->
        d_step {
            tmp = ctsFab[l] & ~(ctsFab[l] - 1);
            ctsFab[l] = ctsFab[l] & ~tmp;
#ifdef RINGS
            ring[RING(l)] = (ring[RING(l)] & ~SLOT(tmp)) | tmp;
#else
            ring[l] = ring[l] | tmp;
#endif
            tmp = 0
        }
        S_LOOKS
       }
#ifdef RINGS
    :: d_step { ackFab[l] && sSt[l] != NONE -> word[ACK_WORD(l)] = ackFab[l]; ackFab[l] = 0 }
    :: atomic {
        (ring[l] & BIT(seen)) || word[l] > sack ->
        d_step { s_acked(word[l]); word[l] = 0 }
        s_progress(todo, where, pick)
       }
#else
    :: atomic {
        ackFab[l] && sSt[l] != NONE ->
        d_step { s_acked(ackFab[l]); ackFab[l] = 0 }
        s_progress(todo, where, pick)
       }
#endif
#ifdef ACCOUNT
    :: d_step { cqe[l] && sSt[l] == UP -> EARLY(l) wr[l] = wr[l] & ~cqe[l]; cqe[l] = 0 }
    :: d_step { broke[l] && cqe[l] -> cqe[l] = 0 } /* the NIC's acknowledgement is lost */
#endif

    /* DOWN: seen by oneself, or heard; to an end that is up, the peer's FENCED says DOWN, too */
#define S_ENDS (sSt[l] == UP && ((broke[l] && SEES_S(l)) || OVER(rSt[l])))
#define R_ENDS (rSt[l] == UP && ((broke[l] && SEES_R(l)) || READS_STAY_AWAY(l) || OVER(sSt[l])))
#ifdef DRAIN
    :: d_step { DRAIN_ENDS(l) -> SEEN_DRAIN(l) drainEnd[l] = 1; STOPS(l) sSt[l] = DOWN }
#endif
#ifndef MERGED
    :: d_step { S_ENDS -> STOPS(l) sSt[l] = DOWN }
    :: atomic {
        R_ENDS ->
        d_step { r_down(l) }
        r_progress(todo, where, pick)
       }
#define S_FENCES (S_CAN_FENCE && sSt[l] == DOWN)
#define R_FENCES (rSt[l] == DOWN)
#else
#define S_FENCES (S_CAN_FENCE && (sSt[l] == DOWN || S_ENDS))
#define R_FENCES R_ENDS
#endif

    /* the fences (P16, P18) */
    :: atomic {
        S_FENCES ->
#ifdef SOFT_S
        if
        :: sSoft[l] = 0
        :: sSoft[l] = 1
        :: sSoft[l] = 2
        fi;
#endif
        d_step { s_close(l) }
       }
    :: atomic {
        R_FENCES && QUIET(l) ->
        d_step { r_down(l); DROP(l); r_close(l) }
        r_progress(todo, where, pick)
       }
#ifdef SOFT_R
    :: atomic {
        R_FENCES ->
        d_step { r_down(l); r_close_soft(l) }
        if
        :: rSoft[l] = 1
        :: rSoft[l] = 2
        fi;
        r_progress(todo, where, pick)
       }
    /* the hold ends with a hard fence after all; with S's fence and T_packet; both ends soft: with T_dead */
    :: atomic {
        rSoft[l] == 1 && QUIET_AFTER_ALL(l) ->
        d_step { fab[l] = 0; LOSE_PAIRS(l); rSoft[l] = 0; HOLD_ENDS(l) }
        r_progress(todo, where, pick)
       }
    :: atomic {
        rSoft[l] && rSettled[l] && sSt[l] == FENCED && GONE(l) ->
        d_step { SEEN_HOLD_END(l); rSoft[l] = 0; HOLD_ENDS(l) }
        r_progress(todo, where, pick)
       }
    :: d_step { rSoft[l] && !stopped[l] && OVER(sSt[l]) -> stopped[l] = 1 }
#endif
#ifdef WORD
    /* S says what the incarnation may still bring: nothing else is held any more (P35) */
    :: atomic {
        rSt[l] == FENCED && OVER(sSt[l]) && IS_NEEDLESS(l) ->
        d_step { r_word(l) }
        r_progress(todo, where, pick)
       }
#endif
#ifdef SOFT_S
#ifdef ACCOUNT
#define HARD_AFTER_ALL(l) wr[l] = 0
#define RELEASE(l) wr[l] = 0; released[l] = 1
#else
#define HARD_AFTER_ALL(l) skip
#define RELEASE(l) skip
#endif
    :: d_step { sSoft[l] == 1 -> sSoft[l] = 0; HARD_AFTER_ALL(l) }
    :: d_step { sSoft[l] && S_RELEASES(l) -> sSoft[l] = 0; RELEASE(l) } /* P19; T_dead */
#endif

    /* FENCED, SETTLED (P20, P21) */
    :: atomic {
        S_MAY_TAKE_UP(l) && rSt[l] == FENCED && !sSettled[l] && R_STILL_AT(l) ->
        if
        :: d_step { s_take_up(l, snap[l]) }
#ifdef FRESH
        :: d_step { s_take_up(l, led) }
#endif
        fi;
        s_progress(todo, where, pick)
       }
    :: d_step { sSettled[l] && rSt[l] == FENCED && !rSettled[l] -> rSettled[l] = 1 }
#ifdef NO_FULL_INC
    :: atomic { /* FENCED of the incarnation before, taken for this one */
        IS_NEXT(l) && sSt[l] == UP ->
        d_step { s_close(l); s_take_up(l, snap[PREV(l)]) }
        s_progress(todo, where, pick)
       }
#endif

#if NL > NP
    /* a new incarnation of the path (P23, P24): OPEN, OPEN_OK, OPEN_UP. Either end may give it up */
    :: d_step { IS_NEXT(l) && rSt[l] == NONE && !R_GONE && R_MAY_OPEN(l) && R_TAKES_BACK(l) -> rSt[l] = OPENING FIRST_RECORD(l) BORN(l) }
    :: d_step { IS_NEXT(l) && sSt[l] == NONE && rSt[l] != NONE && S_MAY_OPEN(l) -> sSettled[PREV(l)] = 1; sSt[l] = OPENING CLEAR_RING(l) }
    :: atomic {
        rSt[l] == OPENING && sSt[l] != NONE ->
        rSt[l] = UP;
        r_progress(todo, where, pick)
       }
    :: atomic {
        sSt[l] == OPENING && STANDS_AT_R(l) ->
        sSt[l] = UP;
        s_progress(todo, where, pick)
       }
    :: d_step { rSt[l] == OPENING && (GIVES_UP || OVER(sSt[l])) -> r_never(l) }
    :: d_step { sSt[l] == OPENING && OVER(rSt[l]) -> s_never(l) }
    :: d_step { IS_NEXT(l) && HAS_NEXT(l) && sSt[l] == NONE && S_MAY_OPEN(l) && rSt[NEXT(l)] != NONE -> s_never(l) } /* skipped */
    :: d_step { sSt[l] == OPENING && GIVES_UP -> sSt[l] = DOWN } /* R may have it up by now: an ordinary end */
#endif

    :: atomic { ALL_DONE && (AT_REST(l) || AT_REST_GONE(l)) && !DRAINED_AWAY(l) -> break }
    od
}

#if defined(LAZY)
/* NCCL's calls, at any time. */
#define MAY_ISEND(m) (m < NM && m < seen && !STARTED(m) && (m < G || GROUP_STARTED((m) / G - 1)))
#define GROUP_STARTED(g) (STARTED((g) * G) && STARTED((g) * G + G - 1))
proctype Nccl()
{
    MASK todo;
    byte where, pick;

    do
    :: d_step { R_CAN_TEST -> r_test() }
    :: atomic {
        R_CAN_POST ->
        d_step { r_irecv() }
        r_progress(todo, where, pick)
       }
    :: atomic { MAY_ISEND(0) -> s_isend(0); s_progress(todo, where, pick) }
    :: atomic { MAY_ISEND(1) -> s_isend(1); s_progress(todo, where, pick) }
#if NM > 2
    :: atomic { MAY_ISEND(2) -> s_isend(2); s_progress(todo, where, pick) }
#endif
#if NM > 3
    :: atomic { MAY_ISEND(3) -> s_isend(3); s_progress(todo, where, pick) }
#endif
    :: atomic { ALL_DONE -> break }
    od
}
#endif

init
{
    MASK todo;
    byte where, pick;

    atomic {
        d_step {
            idx = 0;
            do
            :: idx < NP -> sSt[idx] = UP; rSt[idx] = UP; idx++
            :: else -> break
            od;
            idx = 0;
#ifdef FIRST0
            cts[0] = NEW;
            rpost = 1;
            write_cts(0, 0)
#endif
        }
        r_progress(todo, where, pick);
#ifdef LAZY
        run Nccl();
#endif
#ifdef DRAIN
        start_drain();
#endif
#ifdef GIVE_UP
        run Ends();
#endif
        run Incarnation(0);
#if NL > 1
        run Incarnation(1);
#endif
#if NL > 2
        run Incarnation(2);
#endif
#if NL > 3
        run Incarnation(3)
#endif
    }
}
