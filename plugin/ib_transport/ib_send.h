/*
 * The sender's half of a connection: CTS matching, stripes, posting, completions, acknowledgement
 * (protocol P1, P2, P4, P8, P10, P12-P14).
 *
 * ib_send.c has a message's way from start to done, ib_send_post.c posting beyond the usual one
 * part, ib_send_cts.c what R writes here, ib_send_wc.c completions, ib_send_plan.c the paths,
 * ib_send_bounce.c bounce buffer, and ib_retransmit.c what is done when an incarnation of a path is
 * over.
 *
 * All functions are called with the connection's gate held and never block. The data path takes no
 * lock, allocates nothing, makes no system call and logs nothing on success; but the first post
 * behind a rest of the whole process writes to the service thread's eventfd (ib_conn_stir()).
 */
#ifndef IB_SEND_H
#define IB_SEND_H

#include "base/r2_rules.h"
#include "ib_path.h"
#include "r2_plan.h"

/* Bits of ib_send.pending. */
#define IB_SEND_UNPOSTED 1 /* some part is unposted */
#define IB_SEND_BOUNCE   2 /* a lane is in use */

struct ib_part {
    uint32_t off, len; /* frozen when the first part is posted (P4) */
    uint32_t inc;      /* of the last post */
    uint8_t path;      /* of the last post, or the one the plan chose */
    uint8_t wr_out;    /* its work request is not accounted for */
};

struct ib_smsg {
    uint64_t seq;
    const uint8_t *data;
    struct ib_mr *mr;
    uint64_t raddr;
    uint32_t rkey[IB_MAX_PATHS];
    uint32_t size;
    uint8_t busy; /* from isend to the done that test reports */
    uint8_t nparts;
    uint8_t wrs_out; /* own work requests not accounted for (P13) */
    uint8_t soft; /* bit per path: work requests of a softly fenced incarnation may still read the
                     buffer (P19) */
    uint16_t unposted; /* parts without a live copy that are not in the ledger */
    uint16_t ledger;   /* parts known to be in the receiver's ledger from a snapshot */
    uint16_t arrived;  /* parts whose last work request ended well: what NCCL_R2_ACK=cqe counts */
    struct ib_part part[R2_MAX_PARTS];
};

struct ib_send {
    struct ib_conn *conn;
    struct ib_path *ring_hot; /* whose ring served last (P10) */
    struct r2_plan plan;
    struct {
        uint32_t most;      /* part, bytes: what every path can take */
        uint32_t ring_most; /* ... by way of a bounce buffer, too, for messages of at most 16 such
                               parts; 0: where that is no less, or no path is bounced */
        uint32_t whole; /* a message of fewer bytes is one part, on the first path of the plan; 0:
                           the plan decides for any size */
    } size;
    uint64_t cts_seen;  /* IB_RLX: CTS of all seq below it were taken */
    uint64_t misses;    /* IB_RLX: starts that found no CTS */
    uint64_t unmatched; /* IB_RLX: lowest seq without a message: nothing at or above its group is
                           acknowledged yet (P8) */
    uint64_t group;     /* first seq of the oldest group that is not fully matched */
    uint64_t sack;      /* IB_RLX: largest acked received */
    uint64_t sposted;   /* IB_RLX: one above the highest matched seq */
    uint8_t matched;    /* bit per member of that group */
    uint8_t due;        /* place in its group of the next CTS ... */
    uint8_t due_of;     /* ... and, where that is not 0, buffers of the group */
    uint8_t polls;      /* bit per path: work requests may be out */
    uint8_t turn[2];    /* counts turns of starts and of tests, for the sweep over all rings: of the
                           one the other must not take all */
    uint8_t soft;       /* bit per path: some message has it in its soft */
    uint8_t pending;    /* IB_SEND_UNPOSTED, _BOUNCE: progress has more to do than to poll */
    uint8_t lanes;      /* bit per path: it has a lane */
    uint8_t posting_stopped; /* nothing is posted any more: buffers and registrations of
                                outstanding messages may be gone */
    uint8_t starved;         /* some unposted part found no path at all at the last try */
    uint16_t believed;       /* const: parts that are done with a good completion, all or none
                                (NCCL_R2_ACK=cqe) */
    struct {
        uint64_t retransmitted_parts, retransmitted_bytes, bad_cts, bad_ack;
    } count;
    uint64_t starved_since; /* IB_RLX: ns since when an unposted part has had no path at all; 0 */
    struct ib_bounce_lane *lane[IB_MAX_PATHS]; /* lent; of the path's incarnation, or of one before
                                                 whose copies run still */
    struct ibv_send_wr wr; /* of a plain part; what differs is filled in by who posts */
    struct ibv_sge sge;
    struct ib_cts cts[R2_LEDGER_WINDOW]; /* private copies, whole and checked (P12) */
    struct ib_smsg msg[R2_LEDGER_WINDOW];
    struct r2_plan_load load; /* where the plan is one of whole messages */
};

/* @conn: its paths are chosen, and stay; allocates nothing. */
void ib_send_init(struct ib_send *tx, struct ib_conn *conn);

/*
 * Starts a message of @size bytes for the receive that @tag matches; NULL when no CTS is there yet
 * or the window is full. A message larger than the receive buffer is truncated to it. @data and @mr
 * stay until the done. What could not be posted is posted by later calls. Path errors climb by the
 * sink. The message is @tx's.
 */
struct ib_smsg *ib_send_start(struct ib_send *tx, const void *data, uint32_t size, uint32_t tag,
                              struct ib_mr *mr);

/* Polls completions, CTS and acknowledgements; posts what could not be posted before. Path errors
 * climb by the sink. */
void ib_send_progress(struct ib_send *tx);
/* ... and then whether @m may be reported done: fills @sizes if not NULL, and retires @m. */
int ib_send_test(struct ib_send *tx, struct ib_smsg *m, int *sizes);

/* Whether all parts of @m are in @mask. */
static inline int ib_send_all_parts(const struct ib_smsg *m, unsigned mask)
{
    return mask == (1u << m->nparts) - 1;
}

/* Whether @m is written, as far as its own work requests show: R's process need not have polled
 * it. */
static inline int ib_send_written(const struct ib_send *tx, const struct ib_smsg *m)
{
    return m->wrs_out == 0 && m->soft == 0 &&
           (tx->sack > m->seq || ib_send_all_parts(m, m->ledger | m->arrived));
}

/*
 * Whether @m may be reported done: acknowledged end to end and all own work requests accounted for
 * (P13). Where no snapshot has any part of it, and completions do not count, only the
 * acknowledgement can show it: a message has at least one part.
 */
static inline int ib_send_done(const struct ib_send *tx, const struct ib_smsg *m)
{
    uint16_t believed = r2_rule(R2_RULE_E2E_ACK) ? tx->believed : UINT16_MAX;

    if (m->wrs_out != 0 || m->soft != 0) {
        return 0;
    }
    if (tx->sack > m->seq) {
        return 1;
    }
    return __builtin_expect((m->ledger | believed) != 0, 0) &&
           ib_send_all_parts(m, m->ledger | (m->arrived & believed));
}

/* The done was reported: the slot is free. */
static inline void ib_send_retire(struct ib_smsg *m)
{
    m->busy = 0;
}

/*
 * Posts a write of no bytes behind everything on path @p: a responder that has not got the last
 * packet of a queue pair finds the gap by the next one, refuses it, and has all repeated (IBTA
 * 9.7.5.1.2); where the last acknowledgement was lost, the next one covers it. Of length zero it
 * needs no key (9.7.4.1.2) and consumes no receive, so R's process never sees it. Does nothing
 * where no slot is free, the path is not up, or parts wait for copies, of which its completion
 * would prove nothing.
 */
void ib_send_tail_probe(struct ib_send *tx, struct ib_path *p);

/* --- for failover --- */

/* Drains the CQ of path @p: every completion is accounted, markers are noted in the path. 0, or -1
 * when polling fails. */
int ib_send_drain(struct ib_send *tx, int p);

enum ib_send_close {
    IB_SEND_CLOSE_HARD,    /* its work requests are accounted for */
    IB_SEND_CLOSE_SOFT,    /* they are kept in mind until ib_send_soft_over() */
    IB_SEND_CLOSE_FLUSHED, /* also those that have completed: the library made up their flush, and
                           the NIC may read their buffers still */
};
/* The fence of (@p, @inc) has ended. */
void ib_send_incarnation_closed(struct ib_send *tx, int p, uint32_t inc, enum ib_send_close how);
void ib_send_soft_over(struct ib_send *tx, int p);

/* Parts posted on (@p, @inc) that no acknowledgement covers. */
int ib_send_live_parts(const struct ib_send *tx, int p, uint32_t inc);

/*
 * Those of them that a NIC has, by seq: what the incarnation may still bring to R once nothing more
 * is posted on it (P35). Without what is on its way to a bounce buffer and not posted, which never
 * will be; with it when ib_send_replan() was called since the incarnation went down.
 */
void ib_send_live(const struct ib_send *tx, int p, uint32_t inc, struct r2_parts *out);

/* ... of messages whose done was reported, and that R lacks by the last snapshot: nothing can be
 * posted again for them. */
int ib_send_lost_parts(const struct ib_send *tx, int p, uint32_t inc);

/*
 * The oldest message with parts on (@p, @inc) whose work requests ended well and that no
 * acknowledgement covers: its parts, 0 when there is none.
 */
uint16_t ib_send_oldest_live(const struct ib_send *tx, int p, uint32_t inc, uint64_t *seq);

/* A cumulative acknowledgement from a control message; -1 when it cannot be (P8). */
int ib_send_acked(struct ib_send *tx, uint64_t acked);

/* Masks of a closed incarnation's snapshot: what R has (P21). @masks[i] is of seq @base + i. */
void ib_send_ledger(struct ib_send *tx, uint64_t base, const uint16_t *masks, unsigned n);

/* Parts whose last post was on (@p, @inc) and that the ledger lacks become unposted (P21). Returns
 * how many. */
int ib_send_unpost(struct ib_send *tx, int p, uint32_t inc);

/*
 * The paths that the plan is of: those of the primary NIC pair while it is usable, else all usable
 * ones, or only those of the first NIC pair that is (NCCL_R2_BALANCE=off). Beside the primary pair
 * those of conn->wide, all with NCCL_R2_SPREAD. Pure.
 */
uint32_t ib_send_plan_paths(const struct ib_conn *l);

/* Rebuilds the plan of these paths, by conn->weight. */
void ib_send_replan(struct ib_send *tx);

/* Whether each of the latest receives that R has announced is registered at R's end of some path of
 * @paths. */
int ib_send_reaches_all(const struct ib_send *tx, uint32_t paths);

/* Whether an outstanding message refers to @mr. */
int ib_send_uses(const struct ib_send *tx, const struct ib_mr *mr);

/* The connection is being closed, its queue pairs are gone. 1: it has no lane any more; 0: copies
 * run, call again. @late: those are not waited for any longer. */
int ib_send_bounce_end(struct ib_send *tx, int late);

/* Whether a copy to a bounce buffer that runs reads a buffer of @mr: 0 also where its engine has
 * failed and does not know. Queries the engines. */
int ib_send_bounce_reads(struct ib_send *tx, const struct ib_mr *mr);

/* Every message was acknowledged and reported. */
int ib_send_idle(const struct ib_send *tx);

#endif
