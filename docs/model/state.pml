/* Bounds, words and state of the model (failover.pml). */

#ifndef NP
#define NP 2            /* paths; their first incarnations are up at the start */
#endif
#ifndef NL
#define NL NP           /* incarnations: incarnation l is of path l % NP, the next one of that path is l + NP */
#endif
#ifndef NM
#define NM 2            /* messages */
#endif
#ifndef W
#define W 1             /* receives that NCCL keeps posted: message m takes the buffer that m - W had */
#endif
#ifndef G
#define G 1             /* receives in a group (n of irecv); NM and W are multiples of it */
#endif
#ifndef CUT
#define CUT 0           /* bit m: message m is cut in two */
#endif
#ifndef F
#define F 1             /* faults */
#endif
#ifndef FD
#define FD 0            /* faults in which R's NIC dies, with what it has acknowledged */
#endif
#ifndef FS
#define FS 0            /* faults in which S's NIC dies, with the control writes it has acknowledged */
#endif
#ifndef RQ
#define RQ (2 * NM)     /* parts that an incarnation may have outstanding (P2) ... */
#endif
#ifndef RESERVE
#define RESERVE 0       /* ... of which only the oldest message may take so many */
#endif
#ifndef ADAPTIVE
#define ADAPTIVE 0      /* bits of paths: parts are two work requests there (P32) ... */
#endif
#ifndef SMALL
#define SMALL 0         /* ... but for these messages, bits: they are below the threshold */
#endif
#ifndef SLOTS
#define SLOTS RQ        /* size records that R has room for, per incarnation (P33) ... */
#endif
#ifndef COPIES
#define COPIES SLOTS    /* ... and S for its copies */
#endif
#ifdef FLUSH
#define GPU
#endif
#ifdef ABORT             /* bits of ends: 1 R, 2 S */
#define GIVE_UP
#else
#define ABORT 0
#endif
/*
 * Further switches: SOFT_R, SOFT_S (that end's fence may be soft), ACCOUNT (S's work requests, P13), ONLY_S, ONLY_R (only that end sees
 * a fault by itself), WATCH (nobody does, but for the watchdogs), NIC_DELAY (R's NIC takes its time), FRESH (FENCED may have a later ledger),
 * LAZY (NCCL's calls come at any time), MERGED (an end fences in the step in which it goes DOWN), FIRST0 (the first CTS goes over incarnation 0:
 * the paths are alike). GPU (R's buffers are memory of a GPU, P17), FLUSH (and NCCL_R2_ACK=flush, P34), BAD_RECORD (a fault may be an
 * immediate without its size record), READ_FAULT (... or a NIC of R's that reads no more), DRAIN (path 0 is drained, P24), GIVE_UP (an end
 * without a path gives up, P22), ABORT (NCCL aborts at these ends at any time, P27), RINGS (bits: the incarnations of a path share 1 the ring at
 * S, 2 the word for acknowledgements, P12), WORD (what S says of a dead incarnation may be heard, P35),
 * WAYS (the incarnations of a path go over one NIC, each by a way of its own: faults strike an incarnation, deaths all incarnations of a path; FD or FS, not both). NO_...: a rule switched off; LET_GHOSTS: ghost writes are not looked at.
 */

#if NM > 4
#define MASK short
#else
#define MASK byte       /* of parts: part k of message m is number 2m + k */
#endif
#define NQ (2 * NM)
#define BIT(x) (1 << (x))
#define BELOW(x) (BIT(x) - 1)
#define OF(q) ((q) / 2)
#define PARTS(m) ((((CUT >> (m)) & 1) -> 3 : 1) << (2 * (m)))
#define FULL(mask, m) (((mask) & PARTS(m)) == PARTS(m))
#define OVER(s) ((s) == DOWN || (s) == FENCED)
#define IS_NEXT(l) ((l) >= NP)
#define PREV(l) ((l) - NP)
#define HAS_NEXT(l) ((l) + NP < NL)
#define NEXT(l) ((l) + NP)

/* x for any incarnation. */
#if NL > 3
#define ANY(a, x) ((a[0] x) || (a[1] x) || (a[2] x) || (a[3] x))
#elif NL > 2
#define ANY(a, x) ((a[0] x) || (a[1] x) || (a[2] x))
#else
#define ANY(a, x) ((a[0] x) || (a[1] x))
#endif
/* x(q) for any part. */
#if NQ > 6
#define ANY_PART(x) (x(0) || x(1) || x(2) || x(3) || x(4) || x(5) || x(6) || x(7))
#elif NQ > 4
#define ANY_PART(x) (x(0) || x(1) || x(2) || x(3) || x(4) || x(5))
#else
#define ANY_PART(x) (x(0) || x(1) || x(2) || x(3))
#endif

/* What a violation is called; never set. */
#ifdef LET_GHOSTS /* look past it, at what R would count */
hidden byte ghost_write = 1;
#else
hidden byte ghost_write;
#endif
hidden byte duplicate_completion, no_receive, wrong_message, lost_data, changed_source, it_happens;
hidden byte unwritten, changed_record, overwritten, wrong_size, false_fault, retransmitted, false_success; /* adaptive.pml, gpu.pml, drain.pml, give_up.pml */

/* An incarnation at one end. OPENING: R has said OPEN, S has said OPEN_OK. */
#define NONE 0
#define OPENING 1
#define UP 2
#define DOWN 3
#define FENCED 4

/* --- the network: what is where, per incarnation --- */
MASK fab[NL];           /* posted by S, in the fabric */
MASK nic[NL];           /* accepted and acknowledged by R's NIC, not in memory yet (where a configuration tells the two apart) */
MASK mem[NL];           /* in memory, completion not polled */
#if ADAPTIVE || defined(GPU)
MASK written;           /* parts whose bytes are in their buffer */
#endif
byte ctsFab[NL];        /* CTS, bit per message, and largest acknowledgement under way to S */
byte ackFab[NL];
bool broke[NL];         /* what is under way may be lost */
#if FD > 0
bool dead[NL];          /* R's NIC is dead: what it accepted may be lost, too */
byte deaths = FD;
#endif
#if FS > 0
bool sDead[NL];
byte sDeaths = FS;
#endif
#ifdef WAYS
#if FD > 0
#define gone dead
#define nicDeaths deaths
#else
#define gone sDead
#define nicDeaths sDeaths
#endif
#endif
byte faults = F;
#if FD > 0 || defined(SOFT_R) || defined(ACCOUNT) || defined(NO_MARKERS) || defined(NIC_DELAY) || defined(GPU)
#define NIC_STAGE
#endif
#if defined(NIC_STAGE) && (ADAPTIVE || defined(GPU))
#define APART
MASK pcie[NL];          /* data that R's NIC has accepted, not in memory yet, where it is apart from its completion */
#define IN_PCIE(l) pcie[l]
#else
#define IN_PCIE(l) 0
#endif

/* --- R --- */
byte rSt[NL];
bool rSettled[NL];      /* S said SETTLED */
MASK snap[NL];          /* the ledger in FENCED */
MASK led;               /* the ledger */
byte rdone, rpost, acked;
byte cts[NM];           /* of a message that is not complete: where its CTS is */
#define IDLE 0          /* not posted; complete */
#define NEW 1           /* posted, CTS not written yet */
#define OWED 2          /* written on an incarnation that is over (P11) */
#define ON(l) (3 + (l)) /* written on incarnation l; for a part: posted on incarnation l */
byte told[NL];          /* last value of acked written there, as long as it is up */
#ifdef WATCH
bool lostCtl[NL];       /* a control write was lost: the one that asks for it stays unconfirmed */
#endif
#ifdef SOFT_R
byte rSoft[NL];         /* 1: closed without proof that the NIC is quiet; 2: and that proof will never come */
bool stopped[NL];       /* S is known to post nothing there any more */
#define R_SOFT(l) rSoft[l]
#else
#define R_SOFT(l) 0
#endif
#if defined(SOFT_R) || defined(GPU)
byte hold[NL];          /* messages that are not reported done before the hold of this incarnation ends (P17, P18) */
#define HELD(m) ANY(hold, & BIT(m))
#else
#define HELD(m) 0
#endif

/* --- S --- */
byte sSt[NL];
bool sSettled[NL];      /* FENCED taken up */
byte own[NQ];           /* of a part: IDLE, or where its last post is */
#define UNPOSTED 1
#define HAVE 2          /* acknowledged */
MASK sLed;              /* parts that R is known to have */
byte sack, seen;        /* largest acknowledgement heard; CTS taken */
byte ring[NL];          /* CTS that lie in the ring of an incarnation, not taken yet */
#ifdef RINGS             /* S looks at them at any later time; a CTS has the slot of the one W before it */
byte word[NL];          /* acknowledgement, as ring */
#define RING(l) ((RINGS & 1) -> (l) % NP : (l))
#define ACK_WORD(l) ((RINGS & 2) -> (l) % NP : (l))
#if W == 1
#define SLOT(bit) 15
#elif W == 2
#define SLOT(bit) (((bit) & 5) -> 5 : 10)
#elif W == 3
#define SLOT(bit) (((bit) & 9) -> 9 : (bit))
#else
#define SLOT(bit) (bit)
#endif
#endif
#ifdef ACCOUNT
MASK wr[NL], cqe[NL];   /* S's work requests not accounted for; those that R's NIC has acknowledged */
#define UNACCOUNTED ANY(wr, )
#else
#define UNACCOUNTED 0
#endif
#ifdef SOFT_S
byte sSoft[NL];         /* as rSoft */
#define S_SOFT(l) sSoft[l]
#else
#define S_SOFT(l) 0
#endif
/* S's NIC reads its buffers no more: a hard fence. After a release by P19 (S calls done what S's NIC may still read) R's NIC must take nothing. */
#if defined(SOFT_S) && defined(ACCOUNT)
bool released[NL];
#define READS_NO_MORE(l) (sSt[l] == FENCED && !sSoft[l] && !released[l])
#else
#define READS_NO_MORE(l) (sSt[l] == FENCED && !S_SOFT(l))
#endif
#ifdef NO_P5
MASK stale;             /* parts posted before R's last change of paths */
#endif
#ifdef NO_E2E_ACK
MASK early;             /* parts whose completions were good: what S would call done */
#endif
#ifdef WORD
MASK live[NL];          /* parts that the incarnation may still bring to R, as it went DOWN at S (P35) */
#endif
#define S_DONE(m) (sack > (m) || FULL(sLed, m))
#define S_LIVE(q, l) (own[q] == ON(l) && !(sLed & BIT(q)))

#ifdef GIVE_UP
bool rGone, sGone;      /* the end has given up: NCCL calls no more, nothing is posted any more */
#define R_GONE rGone
#define S_GONE sGone
#else
#define R_GONE 0
#define S_GONE 0
#endif
#define ALL_DONE ((rdone == NM || R_GONE) && (sack == NM || S_GONE) && !UNACCOUNTED)

hidden byte idx, tmp, parts;   /* of steps without a choice in them */

/* A choice among the incarnations in a mask that is not 0. */
inline any_inc(mask, x)
{
    if
    :: (mask) & 1 -> x = 0
    :: (mask) & 2 -> x = 1
#if NL > 2
    :: (mask) & 4 -> x = 2
#endif
#if NL > 3
    :: (mask) & 8 -> x = 3
#endif
    fi
}
/* A choice among the parts in a mask that is not 0. */
inline any_part(mask, x)
{
    if
    :: (mask) & 1 -> x = 0
    :: (mask) & 2 -> x = 1
    :: (mask) & 4 -> x = 2
    :: (mask) & 8 -> x = 3
#if NQ > 4
    :: (mask) & 16 -> x = 4
    :: (mask) & 32 -> x = 5
#endif
#if NQ > 6
    :: (mask) & 64 -> x = 6
    :: (mask) & 128 -> x = 7
#endif
    fi
}
/* The lowest bit of a mask that is not 0. */
inline lowest(mask, x)
{
    x = 0;
    do
    :: !((mask) & BIT(x)) -> x++
    :: else -> break
    od
}
