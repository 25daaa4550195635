/*
 * Who holds a job up (docs/diagnosis.md, "Who holds the job up"). Pure: facts and reports of other
 * processes in, messages to send and a verdict out; no clock, no malloc; the owner's thread only.
 *
 * A process that waits for another one requests its report (struct probe_hang_report): what lies at
 * the end of its own waits, as far as it knows. So a report travels from the process that holds the
 * job up to all that wait for it, one edge at a time, and each process needs only the latest report
 * of those it waits for.
 *
 * Times are in ns on one clock of the owner's, which stands still while its process does.
 */
#ifndef PROBE_HANG_H
#define PROBE_HANG_H

#include <stdint.h>

#define PROBE_HANG_PEERS                                                                           \
    64 /* peers that are waited for or wait, at once; more are answered, and not queried */
#define PROBE_HANG_HOST      40
#define PROBE_HANG_NIC       24
#define PROBE_HANG_RANK_NONE UINT32_MAX
#define PROBE_HANG_HOPS_MAX  4096
#define PROBE_HANG_AGE_MAX   60000u /* ms */
#define PROBE_HANG_BUDGET    32     /* messages of one step */

/* What lies at the end of a wait; of two the later one is reported. */
enum probe_hang_kind {
    PROBE_HANG_NONE,    /* not known yet */
    PROBE_HANG_CYCLE,   /* processes wait for each other in a circle, and for nobody else */
    PROBE_HANG_DEAF,    /* a process that does not take part: an older plugin, or switched off */
    PROBE_HANG_MOVES,   /* it works: no hang */
    PROBE_HANG_IDLE,    /* it waits for nobody, and has posted nothing */
    PROBE_HANG_PATH,    /* it has posted everything, and its NICs complete nothing */
    PROBE_HANG_GONE,    /* it answers nothing, and there is no channel to it */
    PROBE_HANG_STOPPED, /* its channel stands, and its process answers nothing */
    PROBE_HANG_KINDS
};
const char *probe_hang_kind_name(enum probe_hang_kind k); /* "posted-nothing", ...; static */
/* Whether it is a hang, which is logged. */
int probe_hang_is_hang(enum probe_hang_kind k);

struct probe_hang_who {
    uint64_t id;        /* unique in the job, never 0 */
    uint32_t rank, pid; /* PROBE_HANG_RANK_NONE, 0: not known */
    char host[PROBE_HANG_HOST];
};

struct probe_hang_report {
    uint8_t kind;      /* enum probe_hang_kind */
    uint16_t hops;     /* from the sender to root; of NONE: to low */
    uint16_t waiting;  /* processes that wait for root, as far as is known where it was found; of
                          CYCLE: its members */
    uint32_t age_ms;   /* since root, or the process that found it silent, reported this */
    uint32_t since_ms; /* for how long it had been so then */
    struct probe_hang_who root; /* but for NONE */
    char nic[PROBE_HANG_NIC];   /* PATH: of root; "" not known */
    /* NONE: the smallest id behind the waits, how long ago that process reported, and for how long
     * each wait on the way there has lasted at least: waits that are older than the report existed
     * all at one time. */
    uint64_t low;
    uint32_t low_age_ms, stood_ms;
};
/* Of another process: whether every number is in range. Texts are to end within their size. */
int probe_hang_report_is_valid(const struct probe_hang_report *w);

#define PROBE_HANG_ASK                                                                             \
    1 /* the sender waits for the process addressed: to be answered. One that takes no part is to  \
         be sent what any process answers */
#define PROBE_HANG_LONG                                                                            \
    2 /* ... and it, or one that waits for it, has for as long as counts (after) */

/* Another process. */
struct probe_hang_peer {
    const void *peer;         /* of the owner's; NULL: free */
    uint8_t waits, mentioned; /* we wait for it; the present round of facts says so */
    uint8_t knows, up;
    uint8_t asker_long;
    uint8_t owed;   /* it is to be sent our report now */
    unsigned asks;  /* requests to it since its last report */
    uint64_t since; /* we wait */
    uint64_t contacts, heard_at;
    uint64_t spoke_at;           /* while we wait, whatever it said; 0: nothing yet */
    uint64_t ask_from, asked_at; /* first of @asks; the latest */
    uint64_t asker_at;           /* when it sent a request; 0: never */
    uint32_t told; /* version of our report that it has been sent, and when its root made that */
    uint64_t told_origin;
    uint64_t word_at; /* 0: none */
    struct probe_hang_who who;
    struct probe_hang_report report;
};

struct probe_hang {
    struct probe_hang_who self;
    uint64_t after; /* ns: waits of that length are reported; 0: nothing is done at all */
    uint64_t now;
    uint64_t moved_at; /* facts */
    uint64_t silent_since;
    uint64_t self_since; /* it waits for itself, which ends nowhere else; 0: it does not */
    const void *silent_peer;
    char silent_nic[PROBE_HANG_NIC];
    uint8_t young; /* some wait is shorter than counts */
    uint8_t dirty; /* a report has come */
    uint64_t next_at;
    struct probe_hang_report own; /* as of own_at */
    uint64_t own_at, same_since, loop_since;
    uint32_t version;               /* of own: another kind or root */
    uint8_t is_long, is_sure, said; /* to be kept; to be logged; it was */
    struct probe_hang_report what;  /* that was logged */
    uint64_t said_at;
    uint8_t has_gone_on; /* what was at the end of our waits, at some time since */
    unsigned turn;       /* where the budget ended */
    struct probe_hang_peer peer[PROBE_HANG_PEERS];
};

/* @h: any memory. @after_ns: waits of that length are reported; 0: nothing is done. @clock: now. */
void probe_hang_init(struct probe_hang *h, const struct probe_hang_who *self, uint64_t after_ns,
                     uint64_t clock);

/* --- facts: begin, each wait, then step --- */

struct probe_hang_facts {
    uint64_t moved_at;     /* when anything was posted, arrived or completed last */
    uint64_t silent_since; /* since when work requests of ours have had no completion; 0: none */
    const char *nic;       /* ... over which NIC; NULL: not known */
    const void *peer;      /* ... to whom; NULL: to this process */
};
void probe_hang_begin(struct probe_hang *h, uint64_t clock, const struct probe_hang_facts *f);

struct probe_hang_wait {
    const void *peer;
    struct probe_hang_who who; /* as far as it is known; its id always: it may be ours */
    uint64_t since;            /* of the oldest wait for it */
    uint64_t contacts;         /* messages that came from it, of whatever kind */
    uint8_t knows;             /* it takes part */
    uint8_t up;                /* there is a channel to it */
};
void probe_hang_wait(struct probe_hang *h, const struct probe_hang_wait *w);

struct probe_hang_send {
    const void *peer;
    uint8_t flags;
};
enum probe_hang_change {
    PROBE_HANG_NOTHING,
    PROBE_HANG_SAY,  /* h->what is to be logged: once for each hang; one may follow the other while
                        we wait, with a CLEAR between them */
    PROBE_HANG_CLEAR /* ... is over */
};
/*
 * Ends the round of facts (@facts 1), or goes on with those of the last one (0) where
 * probe_hang_is_due(). Writes at most PROBE_HANG_BUDGET messages, each to be sent with
 * probe_hang_report_get(), and their number to *n.
 */
enum probe_hang_change probe_hang_step(struct probe_hang *h, uint64_t clock, int facts,
                                       struct probe_hang_send out[PROBE_HANG_BUDGET], int *n);
/* 1: a round of facts is due. 2: reports have come, and a step without facts is. 0: neither. */
int probe_hang_is_due(const struct probe_hang *h, uint64_t clock);
/* ns until a step is due; UINT64_MAX: never. */
uint64_t probe_hang_due_in(const struct probe_hang *h, uint64_t clock);

/* --- reports --- */

/* @peer has sent @w, which is valid. 1: it is to be answered at once, since there is no room to
 * keep it in mind; else the next step does. */
int probe_hang_on_report(struct probe_hang *h, uint64_t clock, const void *peer, unsigned flags,
                         const struct probe_hang_report *w);
/* The report of this process as it is now. */
void probe_hang_report_get(const struct probe_hang *h, uint64_t clock,
                           struct probe_hang_report *out);
/* @peer is going. */
void probe_hang_leave(struct probe_hang *h, const void *peer);

#endif
