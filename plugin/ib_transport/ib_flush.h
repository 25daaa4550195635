/*
 * Flush of GPU memory (protocol P17). A completion says that the data crossed the NIC's PCIe link,
 * not that a GPU sees it. A read through the NIC that wrote pushes the writes before it: per
 * receive connection and local NIC there is a lane, a queue pair that is connected to itself, over
 * which one byte of the buffer is read into host memory.
 *
 * A NIC that cannot read any more is replaced by time and another NIC: what crossed its link before
 * the completion arrives within T_pcie; then the byte is read through a NIC that is left.
 *
 * A lane that breaks while its NIC carries traffic is built again by the device's worker. A NIC
 * whose lane could not be built at set-up is given no buffers of GPU memory (ib_flush.lacks).
 *
 * Threads: take, begin and test: NCCL's progress thread; begin and test with the connection's gate
 * held. build: the device's worker. The rest: the service thread. Nothing blocks but build and the
 * jobs.
 */
#ifndef IB_FLUSH_H
#define IB_FLUSH_H

#include <stdatomic.h>

#include "ib_recv.h"

#define IB_FLUSH_OPS                                                                               \
    R2_LEDGER_WINDOW /* a flush follows the done of a receive: no more than receives can be        \
                        outstanding */
#define IB_FLUSH_MESSAGES 8

enum ib_lane_state {
    IB_LANE_NONE,
    IB_LANE_READY,
    IB_LANE_BROKEN,
    IB_LANE_BUILDING, /* the worker has its objects */
    IB_LANE_STATES
};

/*
 * state: READY by the worker (build) or by the service thread (end of the job), release; read by
 * the gate holder, acquire. BUILDING and BROKEN after READY by the gate holder. The objects belong
 * to whom the state says: the worker in NONE and BUILDING.
 */
struct ib_lane {
    struct ib_job job; /* first: recovered from the job pointer */
    struct ib_flush *flush;
    _Atomic int state;
    uint8_t nic;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    void *landing; /* 64 bytes that reads land in; nobody reads them */
    struct ibv_mr *mr;
    int rc; /* errno of the last job */

    /* gate */
    int used;          /* reads that are out */
    uint64_t moved_at; /* ns: last time that a read was posted on an idle lane, or came back */
    uint64_t retry_at; /* ns: not built again before */
};

struct ib_flush_op {
    uint8_t used, begun, n;
    uint8_t lost;  /* bit per message: its NIC cannot read, another one has to, from lost_at on */
    uint8_t tried; /* bit per lane: broke with a read of this flush; not tried again before the
                      others were */
    uint8_t bugs;  /* errors that point at the registration rather than at the NIC */
    uint16_t generation;
    uint8_t want;               /* bit per message that holds anything */
    uint8_t todo[IB_MAX_PATHS]; /* per lane, bit per message: read not posted */
    uint8_t out[IB_MAX_PATHS];  /* ... posted, not back */
    uint64_t since, lost_at;    /* ns */
    uint8_t *data[IB_FLUSH_MESSAGES];
    struct ib_mr *mr[IB_FLUSH_MESSAGES];
};

struct ib_ack_flush;

struct ib_flush {
    struct ib_conn *conn;
    struct ib_ack_flush *ack; /* NCCL_R2_ACK=flush, else NULL */
    struct ib_workers *workers;
    void (*notify)(void *arg); /* a job has ended. Service thread */
    void *notify_arg;
    uint8_t always; /* host memory too */
    uint8_t none;   /* bit per path that came up without a lane: what comes over it cannot be read;
                       gate */
    uint8_t lacks;  /* ... so no GPU memory over it: none, but empty while there is no lane at all;
                       gate */
    _Atomic uint8_t able;          /* some lane stood when its path came up; never taken back */
    uint8_t broken;                /* bit per lane: seen broken; gate */
    uint8_t lane_of[IB_MAX_PATHS]; /* the first path over the same NIC */
    int free_count;
    uint16_t free_list[IB_FLUSH_OPS];
    uint64_t reads, replaced,
        rebuilt; /* counters: reads posted, messages read through another NIC, lanes built again */
    char why[128]; /* what test() returned -1 for */
    struct ib_lane lane[IB_MAX_PATHS];
    struct ib_flush_op op[IB_FLUSH_OPS];
};

/* Whether any NIC of @l can reach GPU memory, or NCCL_R2_FLUSH=always. */
int ib_flush_wanted(const struct ib_conn *l);

/* NULL when out of memory. The paths of @l are chosen, none is built. Freed by ib_flush_free. */
struct ib_flush *ib_flush_create(struct ib_conn *l, struct ib_workers *workers,
                                 void (*notify)(void *arg), void *arg);

/*
 * Builds the lane of path @p's NIC, if it is wanted there and not built already. A failure leaves
 * the NIC without one, and the path can come up, but for NCCL_R2_ACK=flush where another lane
 * stands: keys for this NIC may be with S, from before it was known to have no lane, and what comes
 * by them could not be read before it counts (P34). Then returns errno, 0 otherwise. Blocks.
 */
int ib_flush_build(struct ib_flush *f, int p);

/* The paths @up have come up, at set-up or later: which of them can carry GPU memory. */
void ib_flush_open(struct ib_flush *f, unsigned up);

/* Whether messages in @mr need a flush. */
static inline int ib_flush_wants(const struct ib_flush *f, const struct ib_mr *mr)
{
    return mr->type != IB_PTR_HOST || f->always;
}

/*
 * A flush of @n buffers just reported done; those with sizes[i] == 0 or no need are left out.
 * Returns its number, for begin and test; -1 when IB_FLUSH_OPS are outstanding. The registrations
 * must last until the flush is done. Needs no gate.
 */
int ib_flush_take(struct ib_flush *f, int n, void *const *data, const int *sizes,
                  struct ib_mr *const *mrs);

/* Finds out over which NICs the messages came and posts the reads. */
void ib_flush_begin(struct ib_flush *f, const struct ib_recv *rx, int op);

/* Progress. 1: flushed, the number is free again. 0: not yet. -1: impossible, f->why says why; the
 * connection should end. */
int ib_flush_test(struct ib_flush *f, const struct ib_recv *rx, int op);

/* Takes the lanes down on the workers, when no other job of the connection is with one. Returns how
 * many are left; notify() tells. */
int ib_flush_close(struct ib_flush *f);

/* Whether a job is with a worker: @f must not be freed. NULL accepted. */
int ib_flush_busy(const struct ib_flush *f);

/* NULL accepted. Destroys what lanes are left. */
void ib_flush_free(struct ib_flush *f);

/* --- for ib_ack_flush.c; gate --- */

/* Polls the lanes that have reads out, mends broken ones. */
void ib_flush_poll(struct ib_flush *f, uint64_t now);
/* Reads a byte at @data through the NIC of path @p. 0, or -1: not now. */
int ib_flush_read(struct ib_flush *f, int p, const void *data, struct ib_mr *mr, uint64_t wr_id);
/* A read of path @p is back, which was posted in @inc; reads of @lane will never be.
 * ib_ack_flush.c */
void ib_ack_flush_back(struct ib_flush *f, int p, uint32_t inc, uint64_t now);
void ib_ack_flush_broken(struct ib_flush *f, int lane);

/* --- lanes; ib_flush_lane.c --- */

#define IB_LANE_DEPTH 32 /* reads out at a time */

/* Worker. 0 or errno; what was made stays until unmake. @keep: the landing buffer and its
 * registration stay. */
int ib_lane_make(struct ib_flush *f, struct ib_lane *l);
void ib_lane_unmake(struct ib_flush *f, struct ib_lane *l, int keep);

/* Gate. Posts one read of a byte at @addr. 0 or errno. */
int ib_lane_read(struct ib_lane *l, const void *addr, uint32_t rkey, uint64_t wr_id);

#endif
