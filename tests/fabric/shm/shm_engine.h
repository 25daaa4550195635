/*
 * The engine of one process: real time, packets through the shared segment.
 *
 * Threads: the program's threads call verbs; one NIC thread per process does what hardware does
 * when nobody calls: answers packets, runs timers, applies faults. Both run the same code
 * (shm_progress) under the engine's lock; the thread sleeps on the doorbell of its slot until the
 * next deadline and never spins.
 *
 * Rates are kept by clocks in the segment (seg_port.h): a packet gets the instant at which it
 * arrives when it is sent, so throughput does not depend on when anybody wakes up, as long as that
 * is not too late.
 */
#ifndef SHM_ENGINE_H
#define SHM_ENGINE_H

#include "tests/fabric/model/fab_nic.h"
#include "tests/fabric/model/fab_qp.h"
#include "tests/fabric/model/fab_rng.h"
#include "tests/fabric/shm/seg.h"

#include <pthread.h>

/* Records due within this time wait in their ring; later ones are moved out of it, so that they
 * hold up nothing. */
#define SHM_HOLD_NS 100000ull
/* On rated links, where packets come at known times, the NIC thread takes those of this span
 * together: one interrupt for several. */
#define SHM_MODERATE_NS 100000ull
/* The NIC thread is not woken for a deadline that is earlier than its own by less. */
#define SHM_SLACK_NS 20000ull
/*
 * A program that polls without a pause does the work of the NIC thread, and a wake-up per packet
 * would only take its core away. When the thread, awake, finds that the last SHM_IDLE_POLLS calls
 * of the program were polls that found nothing, the last one a moment (SHM_IDLE_NS) ago, it naps,
 * deaf to the bells of packets, for SHM_NAP_NS at a time, as long as the program makes
 * SHM_NAP_CALLS calls in each. A program that stops all the same finds its packets served when the
 * nap ends.
 */
#define SHM_IDLE_POLLS 8
#define SHM_IDLE_NS    50000ull
#define SHM_NAP_NS     200000ull
#define SHM_NAP_CALLS  40
/*
 * After a turn that moved packets the thread looks for more for up to this long before it sleeps:
 * far less than a wake-up costs. Where that found nothing, it does not try for SHM_LINGER_SKIP
 * turns.
 */
#define SHM_LINGER_NS   5000ull
#define SHM_LINGER_SKIP 16
/* Payloads of this size wake the receiver at once; for smaller ones the bell waits for the end of
 * the turn. */
#define SHM_BULK 2048u
/* Packets per NIC and turn, and records per ring and turn, so that sending and receiving take
 * turns. */
#define SHM_TX_BATCH 32
#define SHM_RX_BATCH 64
/* How often a sender whose ring is full asks whether the receiver is alive. */
#define SHM_BURY_NS 2000000ull

/* A packet of this process: being sent (@rec in the ring, not yet published, or NULL: it will be
 * lost) or received. */
struct shm_pkt {
    struct fab_pkt pkt;
    struct shm_pkt *next;
    struct seg_rec *rec;
    uint8_t *copy; /* payload outside the ring, owned */
    int dst_slot;
    bool live;
};

/* A record that arrives later, out of its ring. */
struct shm_held {
    uint64_t due, order;
    struct fab_hdr *hdr; /* with the payload behind it, owned */
};

struct shm_nic {
    struct fab_nic nic;
    struct seg_nic *seg;
    uint32_t fault_seq;               /* applied */
    uint64_t tx_deadline;             /* when to try again; UINT64_MAX: on an event */
    uint16_t rx_waits[FAB_MAX_HOSTS]; /* bit n of h: this process waits for NIC n of host h to take
                                         more */
    bool waiting;                     /* this process may be waiting for a port, this one or such */
};

struct shm_engine {
    struct fab_engine base;
    pthread_mutex_t lock;
    struct seg_map map;
    int host;
    bool attached;
    bool orphan;  /* inherited by a child: does nothing any more */
    uint64_t now; /* of this turn */
    uint32_t fault_gen;
    struct shm_nic nic[FAB_MAX_NICS];

    struct fab_timer **heap; /* timers by time and order; slot = index + 1 */
    uint32_t heap_len, heap_cap;
    uint64_t timer_order;

    struct shm_held *held; /* heap by due and order */
    uint32_t held_len, held_cap;
    uint64_t held_order;
    uint64_t waiting;       /* bit: the ring from that slot has a record that is due soon */
    uint64_t ring_deadline; /* when to look at them */

    struct shm_pkt *free; /* ready for use */
    unsigned free_len;
    uint8_t *scratch; /* payload of packets that will be lost */
    uint64_t bury_at[SEG_SLOTS];
    bool told_full;     /* the lack of memory was reported */
    uint64_t ring_mask; /* slots that got packets in this turn and no bell yet */
    struct fab_rng rng;

    pthread_t thread;
    uint64_t calls, call_last; /* of the program into verbs that move packets: count, time */
    uint32_t idle_polls;       /* in a row, up to the last call */
    bool last_idle;            /* the last call was one */
    bool moved;                /* this turn found packets */
    int linger;                /* below 0: turns without lingering */
    uint64_t deadline;         /* earliest instant at which there is something to do; 0: at once */
    uint64_t thread_deadline;  /* until when the NIC thread sleeps; 0 while it is awake */
};

/* ---- shm_engine.c ---- */

/* The engine of this process, made from the environment at the first call; NULL with errno when
 * there is no fabric. Thread: any. */
struct shm_engine *shm_engine_get(void);
/* Applies faults given since the last call, also while no device is open. Thread: any. */
void shm_engine_refresh(struct shm_engine *e);
/* Everything that can be done now. With the lock held. Blocks: no. */
void shm_progress(struct shm_engine *e);
static inline struct shm_engine *shm_engine_of(struct fab_engine *base)
{
    return (struct shm_engine *)base; /* base is the first member */
}
static inline struct shm_nic *shm_nic_of(struct fab_nic *nic)
{
    return (struct shm_nic *)nic; /* nic is the first member */
}

/* ---- shm_timer.c: struct fab_engine_ops timer_set and timer_cancel ---- */
void shm_timer_set(struct fab_engine *base, struct fab_timer *t, uint64_t when);
void shm_timer_cancel(struct fab_engine *base, struct fab_timer *t);
/* Fires what is due at e->now. */
void shm_timers_run(struct shm_engine *e);

/* ---- shm_tx.c ---- */
struct fab_pkt *shm_pkt_alloc(struct fab_engine *base, struct fab_nic *nic,
                              const struct fab_addr *dst, uint32_t dst_qpn, uint32_t len);
void shm_pkt_send(struct fab_engine *base, struct fab_nic *nic, struct fab_qp *qp,
                  struct fab_pkt *pkt);
/* Lets every NIC transmit as far as rates and room allow. */
void shm_tx_run(struct shm_engine *e);
struct shm_pkt *shm_pkt_new(struct shm_engine *e);
/* Stays valid memory until shm_pkts_trim(): the model may free a packet that its caller still looks
 * at. */
void shm_pkt_put(struct shm_engine *e, struct shm_pkt *p);
/* Between two turns: the memory of a burst goes, or a program that looks for leaks of its own finds
 * the fabric's. */
#define SHM_PKTS_KEPT 8
void shm_pkts_trim(struct shm_engine *e);
/* Rings the bells that this turn owes. */
void shm_bells_run(struct shm_engine *e);

/* ---- shm_rx.c ---- */
void shm_pkt_free(struct fab_engine *base, struct fab_pkt *pkt);
/* Delivers what has arrived; sets ring_deadline. */
void shm_rx_run(struct shm_engine *e);

/* shm_gpu.c: struct fab_engine_ops.memory_has and memory_copy. */
bool shm_gpu_has(struct fab_engine *eng, const void *addr, size_t len);
void shm_gpu_copy(struct fab_engine *eng, void *dst, const void *src, size_t len);

/* ---- shm_fault.c ---- */
/* Applies new faults of the segment to the NICs of this process. */
void shm_faults_run(struct shm_engine *e);
/* Brings NIC @i to the state that the segment has, without events. */
void shm_faults_init(struct shm_engine *e, int i);

#endif
