/* Inside of the in-process engine. */
#ifndef FAB_INPROC_PRIV_H
#define FAB_INPROC_PRIV_H

#include "tests/fabric/inproc/fab_inproc.h"
#include "tests/fabric/model/fab_rng.h"
#include "tests/fabric/verbs/fab_ibv.h"

#define SMALL_PKT 64 /* payload of the small size of packet boxes */
#define FIRST_QPN                                                                                  \
    0x80 /* the same on every NIC, and the lowest free number is used first: reuse is the rule,    \
            not the exception */

/* Events by time, those of one time by the order in which they were set. t->slot is the position in
 * @v, from 1. */
struct heap {
    struct fab_timer **v;
    uint32_t n, cap;
    uint64_t order;
};

struct box {
    struct fab_pkt p; /* first */
    struct fab_timer t;
    struct nic *to;
    struct box *next; /* free list */
    struct box *all;
    uint32_t room;
    bool queued; /* waits for the receiving link's turn */
    uint8_t data[];
};

struct nic {
    struct fab_nic n; /* first */
    struct fab_inproc *f;
    struct fab_timer pump;
    bool pumping;
    uint64_t tx_free, rx_free; /* when the link is idle again */
    uint32_t qpn_hint;
    uint64_t qpn_used[FAB_MAX_QP / 64];
};

/* The spines of one rail. */
struct rail {
    struct fab_rail state;
    /* when the queue of a spine that has a rate is empty: of its link from a leaf switch, and to
       one; without leaf switches [0][0] alone */
    uint64_t free_at[FAB_MAX_SPINES][2][FAB_MAX_HOSTS];
    struct fab_spine_count cnt[FAB_MAX_SPINES];
};

struct user {
    struct fab_timer t;
    struct fab_inproc *f;
    void (*cb)(void *arg);
    void *arg;
    uint32_t gen, index;
    struct user *next;
};

struct fab_inproc {
    struct fab_engine eng; /* first */
    struct fab_desc desc;
    struct fab_inproc_opts opts;
    struct fab_rng rng;
    uint64_t now, events, digest;
    struct heap heap;
    struct box *small, *large, *boxes;
    struct user **users, *users_free;
    uint32_t nusers;
    struct fab_ibv_host hosts[FAB_MAX_HOSTS];
    struct nic *nics;   /* hosts x nics */
    struct rail *rails; /* by rail; NULL: one spine */
    void (*on_channel)(void *arg, int host);
    void *channel_arg;
};

int heap_set(struct heap *h, struct fab_timer *t, uint64_t when); /* -1: ENOMEM */
void heap_cancel(struct heap *h, struct fab_timer *t);
struct fab_timer *heap_pop(struct heap *h);

struct nic *fab_inproc_nic_box(struct fab_inproc *f, int host, int nic);
void fab_inproc_mix(struct fab_inproc *f, uint64_t v);
extern const struct fab_engine_ops fab_inproc_ops;
/* fab_inproc_spine.c. init: -1: ENOMEM. pass, with f->rails alone: what the spine does to a packet
 * that reaches it at *@when; false: it is lost, else *@when is when it leaves. */
int fab_inproc_spine_init(struct fab_inproc *f);
bool fab_inproc_spine_pass(struct fab_inproc *f, const struct fab_hdr *h, uint64_t *when);
void fab_inproc_spine_fault(struct fab_inproc *f, const struct fab_fault *fault);
void fab_inproc_net_init(struct nic *nic);
void fab_inproc_net_fini(struct fab_inproc *f);

#endif
