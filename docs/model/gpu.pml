/*
 * Memory of a GPU at R (P17, P34): a completion may be polled before its data is there. What R's NIC has sent on its way lands at any
 * later time, also after a hard fence; it is lost only with the NIC. A read through the same NIC comes back behind it.
 * Done is what NCCL takes for done: with iflush of every NIC that brought the message. Without GPU nothing of this exists.
 */
#ifdef GPU
#if FD > 0 && !ADAPTIVE
bool lost[NL];          /* R's NIC has died with something */
#endif
#if FD > 0
#define LOST(l) lost[l]
#else
#define LOST(l) 0
#endif
#ifdef FLUSH
MASK unread[NL];        /* polled, not in the ledger: their read is not back */
#ifdef READ_FAULT
bool readless[NL];      /* R's NIC reads no more, and does all the rest */
#define NO_READS(l) (LOST(l) || readless[l])
#else
#define NO_READS(l) LOST(l)
#endif
#else
MASK came[NL];          /* in the ledger through this incarnation */
#endif

/* P34: the read goes through the NIC that brought the part. */
#ifdef NO_SAME_NIC
#define READ_BACK(l) unread[l]
#else
#define READ_BACK(l) (NO_READS(l) -> 0 : (unread[l] & ~pcie[l]))
#endif
/* ... a path whose reads stay away goes DOWN. */
#if defined(READ_FAULT) && !defined(NO_READ_LIMIT)
#define READS_STAY_AWAY(l) (readless[l] && unread[l])
#endif
/* ... what is not read when the incarnation is closed was never there. */
#ifdef NO_UNREAD
#define DROP_UNREAD(l) skip
#define MAY_COUNT(l) 1
#else
#define DROP_UNREAD(l) SEEN_DROP(l) unread[l] = 0
#define MAY_COUNT(l) (rSt[l] != FENCED)
#endif

/* iflush of the oldest message: by a read, and after T_pcie where the NIC cannot; both say that none of it is under way. */
#ifdef FLUSH
#define FLUSHED 1
#else
#ifdef NO_FLUSH_PCIE
#define UNDER_WAY(l) (rSt[l] != FENCED && (pcie[l] & came[l] & PARTS(rdone)))
#else
#define UNDER_WAY(l) (pcie[l] & came[l] & PARTS(rdone))
#endif
#if NL > 3
#define FLUSHED (!UNDER_WAY(0) && !UNDER_WAY(1) && !UNDER_WAY(2) && !UNDER_WAY(3))
#elif NL > 2
#define FLUSHED (!UNDER_WAY(0) && !UNDER_WAY(1) && !UNDER_WAY(2))
#else
#define FLUSHED (!UNDER_WAY(0) && !UNDER_WAY(1))
#endif
#endif

/* P17: what is open when an incarnation is closed waits until what its NIC has sent on its way is there. */
inline hold_gpu(l)
{
#ifndef NO_HOLD_PCIE
    idx = rdone;
    do
    :: idx < rpost && !FULL(led, idx) -> hold[l] = hold[l] | BIT(idx); idx++
    :: idx < rpost && FULL(led, idx) -> idx++
    :: else -> break
    od;
    idx = 0
#else
    skip
#endif
}

#ifdef FLUSH
#define AFTER_PLACE
#define UNREAD(l) unread[l]
#if NL > 3
#define ANY_UNREAD (unread[0] | unread[1] | unread[2] | unread[3])
#elif NL > 2
#define ANY_UNREAD (unread[0] | unread[1] | unread[2])
#else
#define ANY_UNREAD (unread[0] | unread[1])
#endif
#else
#define AFTER_PLACE r_progress(todo, where, pick)
#define UNREAD(l) 0
#endif
#define HOLD_ENDS(l) skip /* T_pcie follows */
#define HOLD_OVER(l) (!hold[l])
#define REST_IN_PCIE(l) (!hold[l] && !UNREAD(l))
#else
#define FLUSHED 1
#define AFTER_PLACE
#define HOLD_ENDS(l) hold[l] = 0
#define HOLD_OVER(l) 1 /* with the soft fence */
#define UNREAD(l) 0
#define REST_IN_PCIE(l) 1
#endif
#ifndef READS_STAY_AWAY
#define READS_STAY_AWAY(l) 0
#endif

/* What S hears that R has is in R's memory. Of a GPU's: with P34 only. */
#if defined(FLUSH) || (ADAPTIVE && !defined(GPU))
#define IS_WRITTEN(mask) assert(unwritten || ((mask) & ~written) == 0)
#else
#define IS_WRITTEN(mask) skip
#endif

/* What is at rest besides, lost besides, forgotten besides with an incarnation. */
#define REST_QUIET(l) (!PAIRS_IN_FABRIC(l) && !RECORDS_IN_NIC(l) && !RECORDS_POLLABLE(l) && !IN_PCIE(l) && REST_IN_PCIE(l))
#if FD > 0 && (ADAPTIVE || defined(GPU))
#define LOSES_MORE(l) (!lost[l] || IN_PCIE(l) || RECORDS_IN_NIC(l) || RECORDS_POLLABLE(l))
#else
#define LOSES_MORE(l) 0
#endif
inline lose_more(l)
{
#if FD > 0 && ADAPTIVE
    tailNic[l] = 0;
    cq[l] = 0;
#endif
#if FD > 0 && defined(APART)
    pcie[l] = 0;
    lost[l] = 1
#else
    skip
#endif
}
inline after_close(l)
{
#ifdef FLUSH
    DROP_UNREAD(l);
#endif
#ifdef GPU
    hold_gpu(l);
#endif
#if ADAPTIVE && !defined(NO_CLOSE_INC)
    wrote[l] = 0;
    RESTART(l);
    idx = 0;
    do
    :: idx < SLOTS -> slot[(l) * SLOTS + idx] = 0; idx++
    :: else -> break
    od;
    idx = 0
#else
    skip
#endif
}
