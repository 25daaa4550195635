/*
 * A path: one RC queue pair of a connection, from one local port to one remote port, in one
 * incarnation (protocol section 2). And struct ib_conn: the paths of one connection with what its
 * sender or receiver half needs to know of its surroundings.
 *
 * Everything here is guarded by the connection's gate, except the *_job functions, which run on the
 * device's worker and own the QP objects of a path that is being built, fenced or destroyed (the
 * gate holder does not touch them meanwhile).
 */
#ifndef IB_PATH_H
#define IB_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ib_relay.h"
#include "ib_transport/verbs/ib_device.h"
#include "ib_transport/verbs/ib_mr.h"
#include "ib_transport/verbs/ib_worker.h"
#include "ib_way_port.h"
#include "ib_wire.h"

/* What can be wrong with a path, by source. */
enum ib_fault {
    IB_FAULT_NONE,
    IB_FAULT_WC,       /* completion in error */
    IB_FAULT_CALL,     /* a verbs call failed */
    IB_FAULT_PORT,     /* port not ACTIVE any more */
    IB_FAULT_DEVICE,   /* device fatal or gone */
    IB_FAULT_QP,       /* QP or CQ error event */
    IB_FAULT_PEER,     /* the peer announced DOWN */
    IB_FAULT_PEER_NIC, /* the peer announced NIC_DOWN */
    IB_FAULT_DATA,     /* an arrival that cannot be (P9) */
    IB_FAULT_SETUP,    /* never came up */
    IB_FAULT_CLOSE,    /* the connection is being closed */
    IB_FAULT_ADMIN,
    IB_FAULT_SILENT,      /* probes of the NIC pair stay without an answer */
    IB_FAULT_UNDELIVERED, /* our NIC acknowledged parts and has no completion for them (P15) */
    IB_FAULT_STALL,       /* the NIC pair answers, this queue pair does not move */
    IB_FAULT_TAIL,        /* ... and its last packet is taken to be lost: RC would repeat it late */
    IB_FAULT_REHEARSAL,   /* nothing is wrong: an administrator wants to see what a failure does */
    IB_FAULT_WAY, /* the way that it takes is known to be silent, and it has not moved since */
    IB_FAULT_COUNT
};
const char *ib_fault_name(enum ib_fault f);

struct ib_fault_info {
    enum ib_fault fault;
    int wc_status; /* enum ibv_wc_status, for IB_FAULT_WC */
    int vendor_err;
    int err; /* errno, for IB_FAULT_CALL */
};

/*
 * Counters that the watchdog reads from the service thread without the gate: written by the gate
 * holder alone, relaxed at both ends, since a stale value costs one tick.
 */
#define IB_RLX_GET(x)    __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define IB_RLX_SET(x, v) __atomic_store_n(&(x), (__typeof__(x))(v), __ATOMIC_RELAXED)
#define IB_RLX_ADD(x, n) IB_RLX_SET(x, (x) + (n))

/* R: receives beyond those that S may use (P2): so many are posted again with one call. */
#define IB_RECV_BATCH 8

/* What a queue pair can do beyond the standard, as its provider numbers it (struct ibv_ece): opaque
 * to us. */
struct ib_ece {
    uint32_t vendor; /* PCI vendor of the device; 0: nothing */
    uint32_t options;
};

struct ib_path {
    /* const during an incarnation */
    uint8_t index;
    uint8_t nic, peer_nic; /* device numbers on their hosts. No byte of their word is a worker's to
                              write: compilers compare the two by a read of all of it */
    uint32_t inc;
    uint8_t way;       /* through the fabric, as R has chosen (ib_way.h); its connecting makes of it
                          the number that it has between these two ports */
    uint16_t udp_port; /* RoCE v2: the source port that follows; 0: by queue pair numbers */
    uint16_t dlid;     /* InfiniBand: the LID that follows; 0: it takes no way */
    struct ibv_qp *qp;
    struct ibv_cq *cq;
    uint32_t psn;
    struct {
        uint32_t sq_depth, rq_depth, max_inline;
    } cap;         /* of the queue pair */
    uint8_t ar;    /* this end has adaptive routing on here */
    uint8_t plain; /* R: kind of the immediates that the ledger takes as they come: DATA; NONE: of
                      none, where arrivals are read first (P34), and from S's report on, which they
                      are compared with (P35) */
    struct {
        uint32_t pair_min; /* a part of more bytes goes as two work requests (P32); UINT32_MAX: none
                              does */
        uint32_t one_max;  /* a part of at most that many bytes is posted as it is: pair_min, or 0
                              where parts go by way of a bounce buffer */
    } part;                /* S */
    struct {
        struct ib_ring *ring;       /* S: the ring of this path in our memory; with @ar copies of
                                       our size records behind it */
        struct ibv_mr *ring_mr;     /* S: the ring. R: ctl_src, shared by all paths */
        struct ib_records *records; /* R: size records, written by the peer; NULL without @ar */
        struct ibv_mr *records_mr;  /* R */
        uint64_t peer_ring;         /* address of the peer's ring; S: of its size records */
        uint32_t peer_ring_key;     /* S: 0: the peer has none */
    } mem;                          /* what either end writes to in the other's memory */
    struct {
        uint32_t peer, ours; /* of the peer's NIC when the incarnation began; of ours */
    } gen;
    struct ib_ece ece; /* before connect what this end can do, then what it uses; this end's worker
                          while it builds */

    /* changes */
    uint8_t
        open; /* not 0: completions count, the incarnation is not closed (P16.5); enum ib_open */
    struct {
        uint8_t out;    /* have come out: bit 0 send queue, bit 1 receive queue */
        uint8_t by_nic; /* of these, those whose completion the NIC wrote itself */
        uint8_t posted;
    } marker; /* P16.3 */
    struct {
        uint16_t used;    /* IB_RLX: work requests that hold a slot */
        uint16_t tails;   /* IB_RLX, S: of those, writes of no bytes (ib_send_tail_probe) */
        uint16_t bulk;    /* IB_RLX, S: of those, writes of data whose record follows (P32) */
        uint16_t ctl_run; /* unsignaled control writes since the last signaled one */
    } sq;                 /* the send queue */
    uint8_t failed;       /* S: a data send has a completion that is no success */
    uint8_t recvs_due;    /* R: receives consumed and not posted again, below IB_RECV_BATCH */
    uint16_t parts_out;   /* S: parts posted here and not covered by acked (P2) */
    uint32_t nrecords;    /* size records of this incarnation. S: posted. R: taken (P33) */
    struct {
        uint64_t sent; /* R: largest acked written here */
        uint64_t
            alone;   /* largest in a word of the ring. R, where acks go round: written. S: taken */
        uint16_t at; /* where acks go round, the word behind that one; else 0 */
        uint16_t poll;  /* S: counts polls of words further on */
        uint16_t room;  /* R, const: with fewer control writes out a lone ack is written at once:
                           sq_depth, or 0 where acks go round the words */
        uint8_t rotate; /* S, const: R's lone acks go round the words of the ring */
    } ack;
    uint64_t closed_at; /* ns: when the last incarnation was closed; 0: none was */
    struct {
        uint64_t wrs, bytes; /* IB_RLX */
        uint64_t cqes;       /* IB_RLX: completions, error or not */
        uint64_t bytes_done; /* IB_RLX, S: of @bytes, those whose work request is accounted for */
    } count;
    bool goes_on; /* a queue pair of it could not be destroyed: its NIC may still read what was to
                     be sent. By the worker that destroys it; read when that job is back */
    uint8_t reserved[39]; /* so that the place of a path in the connection is a shift */
};
_Static_assert(sizeof(struct ib_path) == 256, "a power of two");
_Static_assert(offsetof(struct ib_path, open) == 128, "what changes has cache lines of its own");

struct ib_conn;

/* How errors climb. Called with the gate held, from within ib_send_ / ib_recv_ / ib_fence_ calls.
 */
struct ib_sink {
    void *arg;
    /* @p cannot be used any more. The callee clears conn->up and never destroys anything from
     * within. */
    void (*path_fault)(void *arg, int p, const struct ib_fault_info *info);
    /* the peer breaks the protocol in a way no path change can mend */
    void (*peer_broken)(void *arg, const char *what);
    /* requests of this connection cannot be ended any more: @what, a clause for the reason */
    void (*lost)(void *arg, const char *what);
};

struct ib_conn {
    uint32_t conn_id; /* of the connection on this process: events name it */
    struct ib_path path[IB_MAX_PATHS];
    int npaths;
    uint32_t rq_depth; /* receives that R keeps on each path: its NCCL_R2_RQ_DEPTH, whatever S has;
                          const once set-up has begun (P2) */
    uint32_t up; /* paths that may carry new work; written by failover only, with the gate held,
                    relaxed: the watchdog reads it without */
    uint32_t drained; /* bit per path: to carry new work only where no other path can; those of
                         @last are; written by failover only */
    uint32_t last;    /* bit per path: of last resort; of those that are up the first carries; const
                         once set-up has begun */
    uint32_t weight[IB_MAX_PATHS]; /* of the NIC pair of each path, in any unit, against the others:
                                      written by r2_balance only; 0 where others carry all */
    uint32_t wide; /* bit per path that carries, if it is usable, though the primary is up; written
                      by r2_balance only */
    uint32_t touched; /* IB_RLX: bit per path on which something was posted since it was last found
                         quiet; cleared by the watchdog, with the gate held */
    uint8_t awake; /* IB_RLX: the watchdog checks it, or has been woken to; cleared as touched is */
    void (*wake)(void *arg); /* ... wakes it; gate held. NULL: there is none */
    void *wake_arg;
    struct ib_nics *nics;
    struct ib_sink sink;
    uint64_t (*now_ns)(void *arg);
    void *now_arg;
    const struct r2_config *cfg;
    struct ib_ctl_src
        *ctl_src; /* R: CTS and acks are written from here where they cannot go inline */
    _Atomic uint8_t ctl_src_kept; /* some queue pair that is not destroyed may read it: never freed.
                                     Workers; relaxed */
    struct ib_relay relay;        /* S: lanes for paths by way of a bounce buffer */
    uint8_t traffic_class;        /* of the communicator: traffic class on RoCE, service level on
                                     InfiniBand; const once set-up has begun */
};

static inline uint64_t ib_conn_now(const struct ib_conn *l)
{
    return l->now_ns(l->now_arg);
}

/* Something may be under way: the watchdog checks the connection from its next turn on, until it
 * has found it quiet. Gate held. */
static inline void ib_conn_stir(struct ib_conn *l)
{
    if (__builtin_expect(!l->awake, 0)) {
        IB_RLX_SET(l->awake, 1);
        if (l->wake) {
            l->wake(l->wake_arg);
        }
    }
}

/* Something is posted on path @p. Gate held. */
static inline void ib_conn_touch(struct ib_conn *l, int p)
{
    if (__builtin_expect(!(l->touched >> p & 1), 0)) {
        IB_RLX_SET(l->touched, l->touched | 1u << p);
        ib_conn_stir(l);
    }
}

static inline int ib_conn_up(const struct ib_conn *l, int p)
{
    return (l->up >> p) & 1;
}

/* Of the paths of @up those that carry, or could: of those of last resort only the first, and where
 * there is no other. */
static inline uint32_t ib_conn_carrying(const struct ib_conn *l, uint32_t up)
{
    return up & ~l->last ? up & ~l->last : up & -up;
}

/* The paths that are up and not of last resort. Decisions about them do not count those as another
 * way out. */
static inline uint32_t ib_conn_rdma(const struct ib_conn *l)
{
    return l->up & ~l->last;
}

/* The paths for new work: those that are up and not drained, or, where there are none, those that
 * are up; one of last resort only where there is no other. */
static inline uint32_t ib_conn_usable(const struct ib_conn *l)
{
    return l->up & ~l->drained ? l->up & ~l->drained : ib_conn_carrying(l, l->up);
}

/* The paths over the NIC pair of path @p, itself included: what is found out about the pair holds
 * for all of them. */
static inline uint32_t ib_conn_pair(const struct ib_conn *l, int p)
{
    uint32_t mask = 0;

    for (int i = 0; i < l->npaths; i++) {
        mask |= (uint32_t)(l->path[i].nic == l->path[p].nic &&
                           l->path[i].peer_nic == l->path[p].peer_nic)
                << i;
    }
    return mask;
}

/* How many NIC pairs the paths of @mask go over. */
static inline int ib_conn_pairs(const struct ib_conn *l, uint32_t mask)
{
    int n = 0;

    for (mask &= (1u << l->npaths) - 1; mask; mask &= ~ib_conn_pair(l, __builtin_ctz(mask))) {
        n++;
    }
    return n;
}

/* What a QP and its CQ have as context: an id, never a pointer, since an event may come after the
 * object is gone. */
static inline uint64_t ib_conn_context(uint32_t conn_id, int p, uint32_t inc)
{
    return (uint64_t)conn_id << 28 | (uint64_t)(inc & 0xffffff) << 4 | (uint64_t)p;
}

/* Reports a completion in error; out of line. */
void ib_conn_wc_fault(struct ib_conn *l, int p, const struct ibv_wc *wc);
/* Reports a failed call. */
void ib_conn_call_fault(struct ib_conn *l, int p, int err);

/* Of ib_path.open. Where acks do not go round, S compares with ONE: one comparison, as with 0. */
enum ib_open { IB_OPEN_ONE = 1, IB_OPEN_ROTATE = 2 };

/* The incarnation stands: completions count. */
static inline void ib_path_open(struct ib_path *p)
{
    p->open = p->ack.rotate ? IB_OPEN_ROTATE : IB_OPEN_ONE;
}

/* What the other end has to know of a path at set-up; packed by control/fo_proto.h. */
struct ib_path_addr {
    uint32_t qpn, psn;
    struct ib_addr port;
    uint64_t ring_addr; /* what the other end writes to: S's ring, R's size records */
    uint32_t ring_key;  /* 0: nothing, R without adaptive routing */
    uint32_t nic_gen;
    uint8_t way;       /* R: chosen for both ends; of a probe, what this end wants: probe_way.h */
    struct ib_ece ece; /* R: what it can do; S, which knows that: what it uses of it */
};

/*
 * Building. Run on the device's worker; each returns 0 or a positive errno; on failure the path
 * holds whatever was made and is destroyed with ib_path_destroy(). @sender chooses queue depths; a
 * receiver has its ctl_src.
 */
int ib_path_create(struct ib_conn *l, struct ib_path *p, int sender, uint32_t psn);
int ib_path_connect(struct ib_conn *l, struct ib_path *p,
                    const struct ib_path_addr *peer); /* INIT -> RTR -> RTS */
int ib_path_fill_rq(struct ib_conn *l,
                    struct ib_path *p); /* receiver: the whole receive queue, before RTR */
void ib_path_addr_get(struct ib_conn *l, const struct ib_path *p, struct ib_path_addr *out);

/*
 * Destroys what the path holds. Where the queue pair cannot be destroyed, and the device is there,
 * what the NIC may still read or write stays registered and in its place for ever: it is counted
 * (ib_nics.kept) and logged. Worker, or nobody else has @l; may block in the driver.
 */
void ib_path_destroy(struct ib_conn *l, struct ib_path *p);

/* Worker: QP to ERR (P16.2). 0 or errno. */
int ib_path_error(struct ib_conn *l, struct ib_path *p);

/*
 * Gate holder: the two markers (P16.3). Both are posted before the queue pair goes to ERR: a flush
 * takes them last all the same, while libraries refuse what is posted in ERR (bnxt_re before
 * rdma-core 47, mana), and rdma_rxe (Linux 6.1) never flushes a receive that is. No arrival takes
 * the one of the receives, since the peer never has more parts out than the queue has receives
 * without it (P2; P16.3 has the one exception). The one of the sends is a write of no bytes: where
 * it still goes out, it takes no receive at the peer and needs no key.
 * Posts what is missing of both. 0: both are posted; else the errno of one that is not, ENOMEM
 * last.
 */
int ib_path_mark(struct ib_path *p);

/* Gate holder, queue pair in ERR: whether its library refuses a post for that. Posts one more send
 * marker where it does not. */
int ib_path_refuses(struct ib_path *p);

/* Whether the NIC wrote @wc itself: its vendor's code, 0 before the poll, is set, which no library
 * does for what it makes up, but mana's, and that one only behind an error completion of the NIC.
 */
static inline bool ib_path_is_nics(const struct ibv_wc *wc)
{
    return wc->status == IBV_WC_SUCCESS || wc->vendor_err != 0;
}

/* Posts @n anonymous receives as one chain. 0 or errno. */
int ib_path_post_recvs(struct ib_path *p, int n);

#endif
