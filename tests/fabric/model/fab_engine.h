/*
 * What an engine gives to the device model.
 *
 * The model (this folder) holds the semantics of verbs: queue pairs, completion queues, memory
 * regions, ports, and the reliable transport as real packets. It has no clock, no thread, no I/O
 * and no global state. An engine owns all of that: it tells the time, runs the timers, carries the
 * packets, decides how long each stage of a device takes, and serialises calls into the model.
 *
 *   fab_ibv_* (verbs front-end)  --calls-->  model  --struct fab_engine_ops-->  engine
 *   engine  --fab_nic_rx / fab_nic_tx_next / fab_timer_fire / fab_nic_fault-->  model
 *
 * Every call into the model, from the front-end or from the engine, is made with the engine's lock
 * held (lock/unlock below; an engine with one thread makes them empty). The model never calls lock
 * or unlock; the front-end does. Callbacks run with the lock held and must not block. Times are
 * nanoseconds of the engine's clock, which never goes backwards.
 */
#ifndef FAB_ENGINE_H
#define FAB_ENGINE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct fab_engine;
struct fab_nic;
struct fab_pkt;
struct fab_qp;

/* Place of a NIC in the fabric. @epoch counts address changes of the NIC: packets to or from an old
 * address are dropped. */
struct fab_addr {
    uint16_t host;
    uint16_t nic;
    uint32_t epoch;
};

/*
 * A port of InfiniBand. A LID names a port in its own subnet only, and the same LID may be one of
 * another subnet: a packet without a GRH never leaves its subnet, and goes to whoever has the LID
 * there. One with a GRH leaves it by way of the LID under which the routers of the fabric announce
 * the other subnet (its FLID); with any other LID it stays, and the port that it comes to drops it
 * unless the GID is its own.
 */
struct fab_ib {
    uint16_t lid; /* 0: not InfiniBand but Ethernet, as all NICs are unless a test says otherwise */
    uint16_t subnet;
    uint16_t flid;     /* of the subnet; 0: no router has announced one */
    bool grh_required; /* the port wants a GRH in every packet */
    uint8_t lmc;       /* it has the 2^lmc LIDs from lid on, which is a multiple of that; 0 to 7 */
};

/*
 * Enhanced connection establishment: what a port can do beyond the standard. A queue pair says all
 * of it until it is in RTR, and is told before what to use of it; from RTR on it says what it uses.
 * Told later, or by a number of another vendor, it refuses.
 */
struct fab_ece {
    uint32_t vendor; /* 0: the provider knows nothing of it */
    uint32_t options;
};

/*
 * A timer. The owner sets @fire and @owner once; when, order and slot belong to the engine. A
 * zeroed timer is not armed. @slot is zero exactly while the timer is not armed: the model reads it
 * to know.
 */
struct fab_timer {
    void (*fire)(struct fab_timer *t);
    void *owner;
    uint64_t when;
    uint64_t order;
    uint32_t slot;
};

/* Control calls that an engine may slow down or refuse (struct fab_engine_ops.control). */
enum fab_call {
    FAB_CALL_OPEN,
    FAB_CALL_REG_MR,
    FAB_CALL_CREATE,
    FAB_CALL_MODIFY_QP,
    FAB_CALL_QUERY
};

struct fab_engine_ops {
    /* The present time in ns. */
    uint64_t (*now)(struct fab_engine *e);

    /* (Re)arms @t: at time @when (or at once if that is past, but never inside this call) the
     * engine sets slot to 0 and calls t->fire(t). Timers due at the same time fire in the order in
     * which they were set. */
    void (*timer_set)(struct fab_engine *e, struct fab_timer *t, uint64_t when);
    /* Disarms @t; nothing if it is not armed. After it, fire does not run. */
    void (*timer_cancel)(struct fab_engine *e, struct fab_timer *t);

    /* A packet with room for @len bytes of payload at pkt->data, to be filled by the model and
     * given to pkt_send. It will go to queue pair @dst_qpn at @dst (so an engine can prepare it
     * where the receiver finds it). NULL: no room towards @dst now; the queue pair stays in the
     * transmit ring and is asked again at the next fab_nic_tx_next. */
    struct fab_pkt *(*pkt_alloc)(struct fab_engine *e, struct fab_nic *nic,
                                 const struct fab_addr *dst, uint32_t dst_qpn, uint32_t len);
    /* Takes the packet that @qp put on the wire of @nic. Order between packets of one @qp must be
     * kept by a healthy fabric. */
    void (*pkt_send)(struct fab_engine *e, struct fab_nic *nic, struct fab_qp *qp,
                     struct fab_pkt *pkt);
    /* Gives back a packet received through fab_nic_rx. May come later than the return of
     * fab_nic_rx: when dma_delay is not 0, the payload must stay readable until then. */
    void (*pkt_free)(struct fab_engine *e, struct fab_pkt *pkt);
    /* @nic has something to transmit: call fab_nic_tx_next soon, but never inside this call. Cheap
     * to call repeatedly.
     */
    void (*tx_kick)(struct fab_engine *e, struct fab_nic *nic);

    /* How long an accepted packet of @len bytes waits before its bytes are in memory; and how long
     * a completion takes from the moment it is decided to the moment poll_cq can see it. Order
     * within a queue pair is kept by the model whatever is returned. Both 0: data and completion
     * are there before fab_nic_rx returns. */
    uint64_t (*dma_delay)(struct fab_engine *e, struct fab_nic *nic, uint32_t len);
    uint64_t (*cqe_delay)(struct fab_engine *e, struct fab_nic *nic);
    /* The device is about to write [@addr, @addr+@len) of this process for queue pair @qpn. May be
     * NULL. */
    void (*memory_write)(struct fab_engine *e, struct fab_nic *nic, uint32_t qpn, void *addr,
                         uint32_t len);

    /* Turns an address handle into a place. 0, or an errno value (ETIMEDOUT: nobody answers there).
     */
    int (*resolve)(struct fab_engine *e, struct fab_nic *nic, const struct ibv_ah_attr *ah,
                   struct fab_addr *dst);
    /* A queue pair number, 24 bits, unique on this NIC among all live queue pairs of all processes;
     * 0: none left. */
    uint32_t (*qpn_alloc)(struct fab_engine *e, struct fab_nic *nic);
    void (*qpn_free)(struct fab_engine *e, struct fab_nic *nic, uint32_t qpn);

    /* The rest is called by the verbs front-end, not by the model. */
    void (*lock)(struct fab_engine *e);
    void (*unlock)(struct fab_engine *e);
    /* Called with the lock held before poll_cq and after posts, so that an engine without a thread
     * can move packets. May be NULL. */
    void (*progress)(struct fab_engine *e, struct fab_nic *nic);
    /* An event for completions on @nic was put into a channel of this process. May be NULL. */
    void (*channel)(struct fab_engine *e, struct fab_nic *nic);
    /* Called with the lock held when poll_cq found nothing: the program probably polls again. May
     * be NULL. */
    void (*idle)(struct fab_engine *e);
    /* Called with the lock held at the start of a control call; an errno value makes that call fail
     * with it. May be NULL. */
    int (*control)(struct fab_engine *e, struct fab_nic *nic, enum fab_call call);

    /* Memory that the processor does not reach: whether [@addr, @addr+@len) is such, and a copy
     * from or to it, which may wait for the copy alone. Both NULL: there is none. The other end of
     * a copy is memory of this process. */
    bool (*memory_has)(struct fab_engine *e, const void *addr, size_t len);
    void (*memory_copy)(struct fab_engine *e, void *dst, const void *src, size_t len);
};

/* An engine embeds this. @never_block: calls that would wait (get_async_event, get_cq_event,
 * destroy with unacknowledged events) fail with EAGAIN or EBUSY at once, because the only thread
 * there is would wait for itself. */
struct fab_engine {
    const struct fab_engine_ops *ops;
    int never_block;
};

static inline uint64_t fab_now(struct fab_engine *e)
{
    return e->ops->now(e);
}

/* Bytes of a memory region, wherever they are. */
static inline void fab_memory_copy(struct fab_engine *e, void *dst, const void *src, size_t len)
{
    if (e->ops->memory_copy) {
        e->ops->memory_copy(e, dst, src, len);
    } else {
        memcpy(dst, src, len);
    }
}

/* Runs a timer that came due. For engines: @t must be disarmed (slot 0) before. */
static inline void fab_timer_fire(struct fab_timer *t)
{
    t->fire(t);
}

#endif
