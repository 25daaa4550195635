/*
 * A NIC as one process sees it: port, address, faults, the contexts opened on it, its queue pairs
 * and the ring of those that have something to transmit.
 *
 * With several processes on a host each has its own struct fab_nic for the same NIC (numbers of
 * queue pairs are shared through fab_engine_ops.qpn_alloc); the engine applies each fault in every
 * process.
 */
#ifndef FAB_NIC_H
#define FAB_NIC_H

#include "fab_engine.h"
#include "fab_fault.h"
#include "fab_pkt.h"
#include "fab_rng.h"

#include <stdbool.h>

struct fab_cq;
struct fab_mr;
struct fab_pipe;
struct fab_qp;
struct fab_srq;

/* Limits of the device, all enforced. */
#define FAB_MAX_QP      16384
#define FAB_MAX_CQ      16384
#define FAB_MAX_MR      (1u << 20)
#define FAB_MAX_PD      4096
#define FAB_MAX_SRQ     4096
#define FAB_MAX_QP_WR   16384
#define FAB_MAX_CQE     4194303
#define FAB_MAX_INLINE  512
#define FAB_MAX_RD_ATOM 16
#define FAB_MAX_MSG     (1u << 30)
#define FAB_QP_HASH     256
#define FAB_GID_TABLE   4
#define FAB_PAUSED      4096

/* How a device of this fabric is built. Zeroes mean the value in brackets. */
struct fab_nic_cfg {
    struct fab_ib ib;
    struct fab_ece ece;
    uint32_t seg_bytes;   /* payload per packet [4096]; any multiple of 64 up to 2^20 */
    uint32_t window;      /* packets in flight per queue pair and direction [64] */
    uint32_t slow_timer;  /* the transport timer runs out after so many times its nominal time, 1 to
                             4  (IBTA 9.7.6.1.3) [1] */
    bool retry7_forever;  /* retry_cnt 7 means without end, as Soft-RoCE has it [no: 7 retries] */
    uint64_t dead_dma_ns; /* accepted DMA still lands this long after the device died, or, removed,
                             left sysfs [0: nothing does] */
    bool dead_dma_blind;  /* ... where it was to, though the region has gone: that memory has to be
                             there still */
    uint64_t removing_ns; /* a removed device leaves sysfs this long after its calls began to fail:
                             meanwhile the kernel destroys its objects, and DMA may go on [0] */
    uint64_t linger_ns;   /* a move to ERR returns this long before the device takes no packet more,
                             where `provider` says so [0] */
    bool pauses;         /* what arrives while the device hangs waits in the switch, as under PFC or
                            InfiniBand's credits, FAB_PAUSED packets of it [no: it is lost] */
    uint64_t latency_ns; /* for engines */
    uint64_t reorder_ns; /* a plain write is placed up to this much later, so that those behind it
                            overtake it [0: in order] */
    uint64_t base_rate;  /* link rate without faults, bytes per second; reported by query_port
                            [unlimited, shown as 100   Gb/s] */
};

struct fab_counters {
    uint64_t tx_packets, tx_bytes;   /* put on the wire, payload bytes */
    uint64_t tx_dropped, rx_dropped; /* by link faults (engine) */
    uint64_t rx_packets, rx_bytes;   /* reached the device */
    uint64_t rx_no_qp;               /* for a queue pair number that does not exist */
    uint64_t rx_wrong_state;  /* for a queue pair in RESET, INIT or ERR, or whose context is dead or
                                 unplugged */
    uint64_t rx_wrong_source; /* from another address than the connection's */
    uint64_t rx_hung;         /* while the device was hung or gone */
    uint64_t rx_paused;       /* ... and has come later */
    uint64_t rx_duplicate;    /* requests executed before: acknowledged again only */
    uint64_t rx_out_of_sequence;     /* requests ahead of the expected number */
    uint64_t rx_ghosts;              /* late copies that reached the device */
    uint64_t ghosts_landed;          /* late copies that a queue pair accepted as a new request */
    uint64_t ece_late;               /* told what to use of ECE when it was too late */
    uint64_t ghosts_made, dups_made; /* by the engine */
    uint64_t acks_lost;              /* by fault ack-lost (engine) */
    uint64_t rnr_naks, srq_rnr_naks /* of these, by an empty shared receive queue */, seq_naks,
        access_naks, inv_naks;
    uint64_t timeouts; /* retransmission timers that ran out */
    uint64_t retry_exceeded, rnr_exceeded;
    uint64_t send_errors; /* requests that found no way out */
    uint64_t dma_writes, dma_bytes;
    uint64_t dma_dropped; /* accepted, then the memory region was gone */
    uint64_t dma_lost;    /* accepted, then the device died */
    uint64_t
        overtaken; /* plain writes that one behind them in their queue pair was placed before */
    uint64_t cq_overruns;
    uint64_t calls_failed;     /* control calls refused by fault call-error */
    uint64_t gpu_failed;       /* accesses refused by fault gpu-dma-fail */
    uint64_t lists, lists_cut; /* calls that posted more than one send work request; that were
                                  refused behind the first */
    uint64_t posts_refused;    /* in ERR, by the library */
    uint64_t flushes_made_up;
    uint64_t late_arrivals;           /* good receive completions behind made-up flushes */
    uint64_t lingered;                /* packets taken after a move to ERR */
    uint64_t faults[FAB_FAULT_KINDS]; /* faults applied, by kind */
};

struct fab_ctx;

/* What the device tells the front-end. Called with the engine's lock held; must only queue. */
struct fab_ctx_ops {
    /* An asynchronous event. @element: the user pointer of the QP, CQ or SRQ concerned; NULL for
     * port and device events. */
    void (*async)(struct fab_ctx *ctx, enum ibv_event_type type, void *element);
    /* A completion on an armed CQ. */
    void (*comp)(struct fab_ctx *ctx, struct fab_cq *cq);
};

enum fab_life { FAB_ALIVE, FAB_FATAL, FAB_REMOVED, FAB_UNPLUGGED };

struct fab_nic {
    struct fab_engine *eng;
    void *eng_data; /* the engine's */
    uint16_t host, nic;
    uint32_t gid_epoch;
    struct fab_nic_cfg cfg;
    struct fab_link link;
    enum fab_life gone; /* not FAB_ALIVE: no new contexts until restore */
    bool hung;
    uint64_t hung_at;             /* ns: its time stands still since */
    struct fab_item *paused;      /* what waits in the switch, in order */
    struct fab_item **paused_end; /* NULL: nothing does */
    uint32_t npaused;
    bool retry7_forever;        /* as configured, or by a fault until restore */
    bool recv_kept;             /* receives posted in ERR wait for the next move to ERR */
    enum fab_provider provider; /* what its library does with queue pairs in ERR */
    bool mr_hang;               /* registrations do not return; the front-end waits */
    bool silent_death;          /* contexts that die fail in control calls only */
    uint32_t mr_fail;           /* registrations that will fail; UINT32_MAX: all */
    uint32_t call_error;        /* control calls that will fail with EIO; UINT32_MAX: all */
    bool gpu_dma_fail;          /* what is in memory of a GPU cannot be reached */
    uint32_t list_cut; /* each list of send work requests whose number it divides is refused behind
                          its first one [0: none] */
    struct fab_ctx *ctxs;
    struct fab_pipe
        *orphans; /* pipes whose queue pair was reset or destroyed with DMA outstanding */
    struct fab_qp **qp_hash; /* by number */
    struct fab_qp *qps;
    uint32_t nqps, ncqs, nmrs, npds, nsrqs;
    struct fab_mr **mr; /* by slot; keys are slot << 8 | variant, never 0 */
    uint32_t
        *mr_free; /* keys that were let go: the last one is handed out again first, as it was */
    uint32_t mr_slots, mr_used, mr_nfree;
    uint64_t mr_serial;               /* of the region made last */
    struct fab_qp *tx_head, *tx_tail; /* ring of queue pairs with something to transmit */
    uint32_t tx_count, tx_loops;      /* in the ring; of them connected to this port */
    struct fab_rng reorder_rng;
    struct fab_counters cnt;
};

/* One ibv_open_device. Once dead it stays dead: only a context opened after restore works again. */
struct fab_ctx {
    struct fab_nic *nic;
    const struct fab_ctx_ops *ops;
    void *user;
    struct fab_ctx *next;
    enum fab_life dead;
    bool silent;      /* dead: post and poll do not tell */
    bool unplugged;   /* not dead: calls work, packets do not pass, for ever */
    uint64_t dead_at; /* removed: when it has left sysfs */
};

struct fab_pd {
    struct fab_ctx *ctx;
    uint32_t refs; /* QPs, MRs and SRQs on it */
};

/* @nic zeroed by the caller. -1 with ENOMEM. fab_nic_fini frees what is left, contexts excepted:
 * close those first. */
int fab_nic_init(struct fab_nic *nic, struct fab_engine *eng, int host, int nr,
                 const struct fab_nic_cfg *cfg);
void fab_nic_fini(struct fab_nic *nic);

/* ---- engine side ---- */

/* A packet reached the device. Takes @pkt: pkt_free is called for it, now or later. Blocks: no. */
void fab_nic_rx(struct fab_nic *nic, struct fab_pkt *pkt);
/* Takes what has waited for the end of a hang. Blocks: no. */
void fab_nic_resume(struct fab_nic *nic);
/* Lets one queue pair, in turn, send one packet (pkt_alloc, pkt_send); without @wire, because the
 * link is busy, only one that is connected to this port. False if none can now. */
bool fab_nic_tx_next(struct fab_nic *nic, bool wire);
/* Whether fab_nic_tx_next has anything to look at. */
static inline bool fab_nic_tx_pending(const struct fab_nic *nic)
{
    return nic->tx_head != NULL;
}
/*
 * Applies a fault (link state, events, dead contexts, errors of queue pairs). @fault's host and nic
 * are not looked at.
 * @remove_event: whether FAB_FAULT_REMOVE raises DEVICE_FATAL on the open contexts. Counts in
 * cnt.faults.
 */
void fab_nic_fault(struct fab_nic *nic, const struct fab_fault *fault, bool remove_event);

/* ---- front-end side ---- errno values are returned, 0 for success ---- */

int fab_ctx_open(struct fab_ctx *ctx, struct fab_nic *nic, const struct fab_ctx_ops *ops,
                 void *user); /* EIO, ENODEV: gone */
/* All objects of the context must be gone. DMA still on its way for it is dropped. */
void fab_ctx_close(struct fab_ctx *ctx);
/* EIO when the device of this context died, else 0. */
int fab_ctx_check(const struct fab_ctx *ctx);
/* The same for a call that needs the firmware: EIO as well while fault call-error has any left,
 * which it counts. */
int fab_ctx_call(struct fab_ctx *ctx);
/* Whether the kernel has taken the device away and is done: it has left sysfs. */
bool fab_ctx_removed(const struct fab_ctx *ctx);
/* The same for posting and polling, which do not tell of a silent death. */
int fab_ctx_check_data(const struct fab_ctx *ctx);

int fab_query_device(struct fab_ctx *ctx, struct ibv_device_attr *attr);
int fab_query_port(struct fab_ctx *ctx, uint8_t port, struct ibv_port_attr *attr);
int fab_query_gid(struct fab_ctx *ctx, uint8_t port, uint32_t index, union ibv_gid *gid);

int fab_pd_init(struct fab_pd *pd, struct fab_ctx *ctx);
int fab_pd_fini(struct fab_pd *pd); /* EBUSY while in use */

/* ---- inside the model ---- */
struct fab_qp *fab_nic_find_qp(struct fab_nic *nic, uint32_t qpn);
void fab_nic_tx_add(struct fab_nic *nic,
                    struct fab_qp *qp); /* puts @qp into the transmit ring and kicks the engine */
void fab_nic_tx_remove(struct fab_nic *nic, struct fab_qp *qp);
void fab_ctx_event(struct fab_ctx *ctx, enum ibv_event_type type,
                   void *element); /* not for dead contexts */

#endif
