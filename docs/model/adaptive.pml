/*
 * Adaptive routing (P32, P33): on the paths of ADAPTIVE a part is two work requests on one queue pair, its data and behind it a size
 * record that comes with the immediate. The data bit of a part is the last of its packets: data lands in any order, records in theirs.
 * Without ADAPTIVE nothing of this exists.
 */
#if ADAPTIVE
#define PAIR(q, l) (((ADAPTIVE >> ((l) % NP)) & 1) && !((SMALL >> OF(q)) & 1))

MASK dat[NL];           /* data in the fabric */
/* Parts in order, the first one in the lowest four bits, part q as q + 1: records in the fabric, in R's NIC, in memory with completions not polled. */
int tail[NL], tailNic[NL], cq[NL];
#define HEAD(x) (((x) & 15) - 1)
byte slot[NL * SLOTS];  /* R's memory: part q as q + 1; 0: cleared */
byte wrote[NL], took[NL];
/* P33: both ends count the records of an incarnation from 0. */
#ifdef NO_RECORD_RESTART
#define RESTART(l) skip
#define FIRST_RECORD(l) ; took[l] = took[PREV(l)]
#else
#define RESTART(l) took[l] = 0
#endif
#ifdef BAD_RECORD
bool badRecord;         /* R's NIC has shown an immediate without its record */
#define BAD badRecord
#else
#define BAD 0
#endif

/* RC leaves no gap: when something was lost, nothing follows. */
#if FD > 0
bool lost[NL];
#define GAP(l) lost[l]
#else
#define GAP(l) 0
#endif

/* P32: the record is behind its data, on the same queue pair. */
#ifdef NO_PAIR_ORDER
#define BEHIND_DATA(l) (!GAP(l))
#else
#define BEHIND_DATA(l) (!GAP(l) && !(dat[l] & BIT(HEAD(tail[l]))))
#endif
#ifdef GPU
#define AFTER_DATA(l) 1
#define PLACED(mask) 1  /* looked at when the buffer is used */
#else
#define AFTER_DATA(l) (!(pcie[l] & BIT(HEAD(tailNic[l]))))
#define PLACED(mask) (((mask) & ~written) == 0)
#endif
/* P33: the record is the completion's. */
#ifdef NO_RECORD_CHECK
#define IS_RECORD(x, q) 1
#elif defined(SEQ_MOD)
#define IS_RECORD(x, q) ((x) && ((x) - 1) % (2 * SEQ_MOD) == (q) % (2 * SEQ_MOD))
#else
#define IS_RECORD(x, q) ((x) == (q) + 1)
#endif
#ifdef NO_RECORD_CLEAR
#define UNREAD_SLOT(x) 0
#define CLEAR(x) skip
#else
#define UNREAD_SLOT(x) x
#define CLEAR(x) x = 0
#endif

/* Appends q; idx is how many there were, times four. */
inline push(x, q)
{
    idx = 0;
    do
    :: (x >> idx) & 15 -> idx = idx + 4
    :: else -> break
    od;
    x = x | ((q) + 1) << idx
}
#ifdef NO_ONE_QP
#define RECORD_INC(l) (sSt[1 - (l)] == UP -> 1 - (l) : (l))
#else
#define RECORD_INC(l) (l)
#endif
inline post_data(q, l)
{
    if
    :: rSt[l] == FENCED && !R_SOFT(l) && !OPEN_AFTER_FENCE -> skip
    :: else -> dat[l] = dat[l] | BIT(q)
    fi
}
inline post_record(q, l)
{
    if
    :: rSt[l] == FENCED && !R_SOFT(l) && !OPEN_AFTER_FENCE -> skip
    :: else ->
        push(tail[l], q);
        assert(changed_record || idx < 4 * COPIES);
        idx = 0
    fi
}
/* The driver takes the data and refuses the record: the part is live, S's incarnation is over. */
inline post_half(q, l)
{
    STOPS_BEFORE(l)
    if
    :: broke[l] -> skip
    :: else -> broke[l] = 1; faults--
    fi;
#ifndef NO_PAIR_LIVE
    own[q] = ON(l);
#ifdef ACCOUNT
    wr[l] = wr[l] | BIT(q);
#endif
#endif
    post_data(q, l);
    STOPS_BEHIND(l)
    sSt[l] = DOWN
}
#ifdef NO_PAIR_LIVE /* and is posted at once on another path */
#define NEXT_PART if :: where && own[where - 1] == UNPOSTED -> skip :: else -> todo = todo & (todo - 1) fi
#endif
#define CALL_FAILS(q, l) (PAIR(q, l) && (broke[l] || (faults > 0 && ANOTHER)))
inline post_or_fail(q, l)
{
    if
    :: d_step { post(q, l) }
    :: d_step { CALL_FAILS(q, l) -> SEEN_HALF(l) post_half(q, l) }
    fi
}

inline accept_data(q, l)
{
#ifdef ACCOUNT
    assert(changed_source || READS_NO_MORE(l) || !S_DONE(OF(q)) || OWN_REQUEST(q, l));
#endif
#ifdef NIC_STAGE
    pcie[l] = pcie[l] | BIT(q)
#else
    place(q)
#endif
}
inline accept_record(q, l)
{
    take_receive(l)
#ifdef ACCOUNT
    ;
    cqe[l] = cqe[l] | (BIT(q) & wr[l])
#endif
}
#ifdef NIC_STAGE
#define ACCEPT_RECORD(q, l) skip
#else
#define ACCEPT_RECORD(q, l) accept_record(q, l)
#endif
/* A record and its completion reach memory; @good: with its bytes. */
inline land_record(q, l, good)
{
    if
    :: CLOSED(l)
    :: else ->
        assert(overwritten || !UNREAD_SLOT(slot[(l) * SLOTS + wrote[l]]));
        if
        :: good -> slot[(l) * SLOTS + wrote[l]] = (q) + 1
        :: else
        fi;
        wrote[l] = (wrote[l] + 1) % SLOTS;
        push(cq[l], q);
        idx = 0
    fi
}
/* The first record of a queue lands, or its completion alone. */
inline land_or_spoil(x, l)
{
    if
    :: d_step { ACCEPT_RECORD(HEAD(x), l); land_record(HEAD(x), l, 1); x = x >> 4 }
#ifdef BAD_RECORD
    :: d_step { faults > 0 && !broke[l] && !CLOSED(l) && ANOTHER -> faults--; badRecord = 1; ACCEPT_RECORD(HEAD(x), l); land_record(HEAD(x), l, 0); x = x >> 4 }
#endif
    fi
}
/* R polls: counted is what comes with its own record; what does not ends the incarnation (P9). */
inline r_poll_records(l)
{
    parts = 0;
    tmp = 0; /* 1: a record is not what it should be */
    do
    :: cq[l] ->
        idx = slot[(l) * SLOTS + took[l]];
        if
        :: IS_RECORD(idx, HEAD(cq[l])) ->
            assert(wrong_size || idx == HEAD(cq[l]) + 1);
            assert(unwritten || PLACED(BIT(HEAD(cq[l]))));
            parts = parts | BIT(HEAD(cq[l]))
        :: else ->
            assert(false_fault || BAD);
            SEEN_BAD(l)
            tmp = 1
        fi;
        CLEAR(slot[(l) * SLOTS + took[l]]);
        took[l] = (took[l] + 1) % SLOTS;
        cq[l] = cq[l] >> 4
    :: else -> break
    od;
    idx = 0;
    r_arrive(parts, l);
    parts = 0;
    if
    :: tmp && rSt[l] == UP -> tmp = 0; r_down(l)
    :: else -> tmp = 0
    fi
}

#define COUNT(x) do :: (x) >> idx & 15 -> parts++; idx = idx + 4 :: else -> break od; idx = 0
#define COUNT_RECORDS(l) COUNT(tailNic[l]); COUNT(cq[l])
#define PAIRS_IN_FABRIC(l) (dat[l] || tail[l])
#define LOSE_PAIRS(l) dat[l] = 0; tail[l] = 0
#define RECORDS_IN_NIC(l) tailNic[l]
#define RECORDS_POLLABLE(l) cq[l]
#else
#define PAIRS_IN_FABRIC(l) 0
#define LOSE_PAIRS(l) skip
#define RECORDS_IN_NIC(l) 0
#define RECORDS_POLLABLE(l) 0
#define COUNT_RECORDS(l) skip
#endif
#ifndef FIRST_RECORD
#define FIRST_RECORD(l)
#endif
#ifndef NEXT_PART
#define NEXT_PART todo = todo & (todo - 1)
#endif
