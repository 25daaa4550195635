/*
 * Shared by r2_report.c (saying), r2_report_case.c (what belongs together) and r2_report_rows.c
 * (the statistics file). Service thread alone.
 */
#ifndef R2_REPORT_INT_H
#define R2_REPORT_INT_H

#include <stdbool.h>

#include "base/r2_time.h"
#include "core/r2_notify.h"
#include "r2_event.h"
#include "r2_report.h"
#include "r2_stat.h"

#define R2_REPORT_CASES 16
#define R2_REPORT_OUT   32768 /* bytes of events until the end of the turn */

/*
 * A failing NIC ends an incarnation of every connection over it. That is one case: one fault when
 * it begins, one switch when every incarnation of it is settled and every connection that waited
 * has moved on.
 */
struct r2_report_case {
    uint32_t no;             /* 0: free */
    enum r2_event_kind kind; /* what it ends with: SWITCH, DRAIN, FAILBACK, GIVEUP, STALL */
    int nic;
    uint64_t began, last;     /* ns: first and last connection of it */
    uint32_t conns, stranded; /* connections; of these with no path left */
    uint32_t pending, stalls; /* incarnations not settled; connections that wait */
    uint32_t waited;          /* connections that had to */
    uint64_t stall_ns, detect_ns, retransmitted;
    uint32_t to;                      /* bit per NIC: where they go on */
    struct ib_fault_info info;        /* of the most telling fault */
    uint8_t reported, hosts, devices; /* hosts, devices: 0, 1, or 2 for several */
    char peer_host[40], peer_nic[24];
    char detail[128];
};

struct r2_report_nic {
    char why[64], trouble[96], blamed[96];
    uint64_t since, trouble_at, blamed_at; /* CLOCK_REALTIME, ns */
    enum ib_nic_state state;
    uint64_t sent, received, wrs;
    uint32_t over, primary, moved, last; /* connections, as in struct r2_stat_nic ... */
    uint32_t ours;  /* of those moved away: for what is not known to be the peer's */
    uint32_t aside; /* that it carries as their last resort, which is an RDMA NIC */
    uint64_t stalls, stall_ns, stall_at; /* without a fault: how many, the last one, until when
                                            (CLOCK_REALTIME, ns; 0: none) */
    uint64_t stall_warned;               /* ns */
};

enum r2_report_reason {
    R2_ADVICE_LAST_NIC,
    R2_ADVICE_LAST_RESORT,
    R2_ADVICE_ASIDE,
    R2_ADVICE_HANG,
    R2_ADVICE_REASONS
};
struct r2_report_advice {
    int holds;        /* the reason does */
    uint64_t said_at; /* ns; 0: never */
};

struct r2_report {
    struct r2_inst *inst;
    struct r2_stat *stat; /* NULL: none */
    int events_on, failure_logged, stopped;
    struct r2_event_file events;
    struct r2_event_source src;
    struct r2_event_sum sum;
    uint64_t start; /* CLOCK_REALTIME, ns */
    uint64_t seq, history, lost;
    struct {
        uint32_t id;  /* of the latest that may be revised; 0: none */
        uint64_t seq; /* ... of its event */
    } cause;
    uint32_t case_no;
    struct r2_report_case cas[R2_REPORT_CASES];
    uint32_t stalling; /* connections that wait, or so it seems */
    uint64_t stall_since;
    struct r2_report_nic nic[IB_MAX_NICS];
    struct r2_report_advice advice[R2_ADVICE_REASONS];
    struct r2_hist_live stall_times[R2_STAT_STALLS];
    int had_more;                        /* than one NIC that is usable */
    struct r2_hook_env *env;             /* for NCCL_R2_ON_EVENT; NULL: none */
    uint64_t record[R2_STAT_CONNS / 64]; /* records in use */
    uint32_t records;                    /* up to which */
    int changed;
    struct {
        struct r2_comm *first, **last; /* by seen.row_next, in turn */
        int lacking; /* 1: some connection found no record free; 2: one has become free since */
        uint64_t wrote_at; /* ns */
    } rows;                /* records of connections to be written */
    struct {
        uint32_t standing, resort; /* resort: without another NIC than one of last resort */
    } conns;                       /* r2_report_count.c */
    struct {
        uint64_t since; /* ns: of the present span ... */
        unsigned said;  /* ... in which so many were announced */
    } transfer;         /* r2_transfer.c */
    size_t out_len;
    char out[R2_REPORT_OUT];
};

static inline uint64_t r2_report_real(const struct r2_report *r, uint64_t mono)
{
    return r2_clock_ns(CLOCK_REALTIME) - r2_elapsed(r2_now(r->inst), mono);
}

/* Fills in who, when, and how many NICs are usable; keeps it in the history, and as a line for the
 * end of the turn. */
void r2_report_emit(struct r2_report *r, struct r2_event *e, uint64_t mono);
/* The NIC of an event. */
struct r2_event_nic r2_report_nic_of(const struct r2_report *r, int nic);

/* r2_report_case.c */
void r2_report_case_lost(struct r2_comm *c, int p);
void r2_report_case_settled(struct r2_comm *c, int p);
void r2_report_case_back(struct r2_comm *c, int p);
void r2_report_case_giveup(struct r2_comm *c);
void r2_report_case_comm_over(struct r2_comm *c);
void r2_report_case_stall(struct r2_comm *c, uint64_t now); /* whether it has moved on */
void r2_report_case_quarantine(
    struct r2_comm *c,
    int p); /* R: whether the quarantine of (@p) is over that kept something from NCCL */
/* Says what is complete; @all: whatever is there. */
void r2_report_cases_step(struct r2_report *r, uint64_t now, int all);

/*
 * Work requests of path @p had no completion for @ns, and the incarnation goes on (r2_stall.h).
 * @over: it has ended; else it lasts, and only the statistics show it.
 */
void r2_report_stall(struct r2_comm *c, int p, uint64_t ns, int over);

/* A report about a NIC pair of this process is kept, unless this process itself made it. */
void r2_report_gossip(struct r2_inst *inst, const struct probe_report *w, enum r2_report_from from,
                      const char *who);
/* Another process has found that a way of a NIC pair of this process is silent. */
void r2_report_way(struct r2_pair *pair, unsigned way, uint64_t ns, enum r2_report_from from,
                   const char *who);
/* r2_report_why.c: what the job knows of the reason why @c lost paths, into seen.path[] and the
 * NIC's trouble */
void r2_report_why(struct r2_report *r, struct r2_comm *c);

/* r2_report_advice.c: whether a checkpoint is due, since the last usable NIC is, or a process of
 * @host holds the job up (@over: does not any more). */
void r2_report_advise_nics(struct r2_report *r, uint64_t now);
/* ... or since connections go on over TCP alone, or an RDMA NIC that is their last resort. */
void r2_report_advise_last(struct r2_report *r, uint64_t now);
void r2_report_advise_hang(struct r2_report *r, const char *host, int over, uint64_t now);
/* At init: what NCCL_R2_ON_EVENT needs; a WARN where it cannot be run. */
void r2_report_advise_open(struct r2_report *r);

/* r2_report_count.c: the sums over connections, in struct r2_report and struct r2_report_nic */
/* What has become of @c: after each step, when a reason is found, when it goes. */
void r2_report_count_state(struct r2_report *r, struct r2_comm *c);
/* What @c has moved since. */
void r2_report_count_moved(struct r2_report *r, struct r2_comm *c);
bool r2_report_is_standing(const struct r2_comm *c);
/* Bit per NIC that carries, or could. good: also one that connections left for faults of their
 * other ends alone, which a communicator that is made now would use. */
uint32_t r2_report_usable(const struct r2_report *r);
uint32_t r2_report_good(const struct r2_report *r);
/* A counter of the data path, without the gate; bytes of messages of a path's incarnation. */
uint64_t r2_report_word(const uint64_t *w);
uint64_t r2_report_bytes(const struct ib_path *path);

/* r2_report_rows.c */
/* The record of @c is to be written. look: those of connections that have moved something. */
void r2_report_row_due(struct r2_report *r, struct r2_comm *c);
void r2_report_rows_look(struct r2_report *r);
void r2_report_rows_write(struct r2_report *r);
/* The rows of our NICs, as they are now. */
void r2_report_nics_fill(const struct r2_report *r, struct r2_stat_nic row[IB_MAX_NICS]);
void r2_report_row_free(struct r2_report *r, struct r2_comm *c); /* it is going */
void r2_report_event_put(struct r2_report *r, const struct r2_event *e);

/* r2_report_traffic.c: the file of traffic beside the statistics (r2_traffic.h); what the rows of
 * NICs say now; its last row */
void r2_report_traffic_open(struct r2_report *r);
void r2_report_traffic_look(const struct r2_report *r, const struct r2_stat_nic row[IB_MAX_NICS]);
void r2_report_traffic_close(struct r2_report *r);

#endif
