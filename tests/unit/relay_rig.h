/*
 * What the suites of bounce buffer share: a sender whose memory some NICs refuse, and a copy
 * engine whose copies end when the test says so. What a copy reads it reads at its end: a buffer
 * that was given back too early has other contents by then.
 */
#ifndef RELAY_RIG_H
#define RELAY_RIG_H

#include "tests/unit/race_rig.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "plugin/bounce/r2_relay.h"
#include "plugin/ib_transport/ib_send.h"

#define SHORT "NCCL_R2_T_RETURN=20", "NCCL_R2_T_PACKET=10"
#define PAGE  4096

struct copy_lane {
    unsigned head, tail; /* copies that run, in the order in which they began */
    int open;
    struct copy_one {
        unsigned slot;
        void *dst;
        const void *src;
        size_t len;
    } copy[IB_BOUNCE_ENTRIES];
    uint8_t runs[IB_BOUNCE_ENTRIES];
};

/* The engine, and what it was asked. */
struct engine {
    int hold;                /* copies end by copies_end() alone; else when they are asked about */
    int refuse;              /* errno of begin() */
    int broken;              /* done() says -1, begin() fails */
    int no_memory;           /* errno of mem_get() */
    int no_bounce;           /* NICs do not take bounce buffer either */
    int no_lane;             /* lane_open() fails for this lane, counted from 1; 0: for none */
    int hidden;              /* memory is the host's */
    const struct topo *topo; /* whose GPUs gpu_pci() knows; NULL: none */
    size_t give;             /* bytes of bounce buffer; 0: what is asked for */
    unsigned refuses;        /* bit per NIC: does not take the sender's memory */
    size_t asked;
    int last_gpu;       /* whose memory that was */
    int policy;         /* of the thread then */
    unsigned long node; /* ... bit per node */
    int nic_node;       /* NUMA node of all NICs + 1; 0: not known */
    unsigned asks;      /* mem_get() */
    unsigned calls, begun, ended, refused, lanes, registrations_refused;
    void *mem[IB_MAX_NICS]; /* not put */
    struct copy_lane lane[R2_RELAY_LANES * 2];
};
static struct engine engine, engine_next; /* the latter: how it begins */

static inline int engine_gpu_of(void *arg, const void *addr)
{
    engine.calls++;
    return engine.hidden ? IB_COPY_HOST : 0;
}

static inline int engine_gpu_pci(void *arg, int gpu, char *text, size_t len)
{
    engine.calls++;
    if (engine.topo == NULL || gpu >= engine.topo->gpus) {
        return ENODEV;
    }
    topo_bdf_text(&engine.topo->pci[engine.topo->gpu[gpu].pci], text);
    return 0;
}

static inline int engine_mem_get(void *arg, int gpu, size_t len, struct ib_copy_mem *mem)
{
    int i = 0;

    engine.calls++;
    ck_assert(gpu == IB_COPY_HOST || engine.topo);
    engine.last_gpu = gpu;
    engine.policy = -1;
    engine.node = 0;
    syscall(SYS_get_mempolicy, &engine.policy, &engine.node, 64ul, NULL, 0ul);
    engine.asked = len;
    engine.asks++;
    if (engine.no_memory) {
        return engine.no_memory;
    }
    *mem = (struct ib_copy_mem){
        .len = engine.give ? engine.give : len, .type = IB_PTR_HOST, .dmabuf_fd = -1};
    while (engine.mem[i]) {
        ck_assert_int_lt(++i, IB_MAX_NICS);
    }
    ck_assert_int_eq(posix_memalign(&engine.mem[i], 4096, mem->len), 0);
    mem->addr = engine.mem[i];
    return 0;
}

static inline void engine_mem_put(void *arg, struct ib_copy_mem *mem)
{
    int i = 0;

    while (engine.mem[i] != mem->addr) {
        ck_assert_int_lt(++i, IB_MAX_NICS);
    }
    engine.mem[i] = NULL;
    free(mem->addr);
}

static inline int engine_lane_open(void *arg, int from, int to, unsigned slots, void **lane)
{
    int i = 0;

    engine.calls++;
    ck_assert_uint_eq(slots, IB_BOUNCE_ENTRIES);
    if (engine.no_lane && engine.lanes + 1 == (unsigned)engine.no_lane) {
        return EMFILE;
    }
    while (engine.lane[i].open) {
        ck_assert_int_lt(++i, R2_RELAY_LANES * 2);
    }
    engine.lane[i] = (struct copy_lane){.open = 1};
    engine.lanes++;
    *lane = &engine.lane[i];
    return 0;
}

static inline void engine_lane_close(void *arg, void *lane)
{
    struct copy_lane *l = lane;

    ck_assert(l->open);
    ck_assert(l->head == l->tail || engine.broken);
    l->open = 0;
    engine.lanes--;
}

static inline int engine_begin(void *arg, void *lane, unsigned slot_, void *dst, const void *src,
                               size_t len)
{
    struct copy_lane *l = lane;

    if (engine.refuse || engine.broken) {
        engine.refused++;
        return engine.refuse ? engine.refuse : EIO;
    }
    ck_assert(l->open && slot_ < IB_BOUNCE_ENTRIES && !l->runs[slot_]);
    l->runs[slot_] = 1;
    l->copy[l->tail++ % IB_BOUNCE_ENTRIES] = (struct copy_one){slot_, dst, src, len};
    engine.begun++;
    return 0;
}

static inline void copy_end(struct copy_lane *l)
{
    const struct copy_one *c = &l->copy[l->head++ % IB_BOUNCE_ENTRIES];

    memcpy(c->dst, c->src, c->len);
    l->runs[c->slot] = 0;
    engine.ended++;
}

/* All that run. Returns how many. */
static inline unsigned copies_end(void)
{
    unsigned before = engine.ended;

    for (int i = 0; i < R2_RELAY_LANES * 2; i++) {
        while (engine.lane[i].head != engine.lane[i].tail) {
            copy_end(&engine.lane[i]);
        }
    }
    return engine.ended - before;
}

static inline int engine_done(void *arg, void *lane, unsigned slot_)
{
    struct copy_lane *l = lane;

    if (engine.broken) {
        return -1;
    }
    while (!engine.hold && l->runs[slot_]) {
        copy_end(l);
    }
    return !l->runs[slot_];
}

static const struct ib_copy_ops engine_ops = {.gpu_of = engine_gpu_of,
                                              .gpu_pci = engine_gpu_pci,
                                              .mem_get = engine_mem_get,
                                              .mem_put = engine_mem_put,
                                              .lane_open = engine_lane_open,
                                              .lane_close = engine_lane_close,
                                              .begin = engine_begin,
                                              .done = engine_done};

/* --- NICs that do not take the sender's memory --- */

static struct ib_verbs plain;

static inline int nic_refuses(const struct ibv_pd *pd, const void *addr)
{
    const char *name = plain.get_device_name(pd->context->device);
    uintptr_t at = (uintptr_t)addr + PAGE - (uintptr_t)out; /* a registration is of whole pages */

    if (engine.no_bounce && addr == engine.mem[0]) {
        engine.registrations_refused++;
        errno = EFAULT;
        return 1;
    }
    if (at >= sizeof(out) + PAGE || !(engine.refuses >> (name[strlen(name) - 1] - '0') & 1)) {
        return 0;
    }
    engine.registrations_refused++;
    errno = EFAULT;
    return 1;
}

static inline struct ibv_mr *refusing_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
    return nic_refuses(pd, addr) ? NULL : plain.reg_mr(pd, addr, len, access);
}

static inline struct ibv_mr *refusing_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len,
                                                   uint64_t iova, unsigned access)
{
    return nic_refuses(pd, addr) ? NULL : plain.reg_mr_iova2(pd, addr, len, iova, access);
}

static inline void refusing_verbs(struct ib_verbs *v)
{
    plain = *v;
    v->reg_mr = refusing_reg_mr;
    if (plain.reg_mr_iova2) {
        v->reg_mr_iova2 = refusing_reg_mr_iova2;
    }
}

/* --- birth and death --- */

static inline struct ib_mr *register_as(int type)
{
    struct ib_mr *mr;

    rig_enter(&rig->side[0]);
    ck_assert_int_eq(r2_net_reg(comm(0), out, sizeof(out), type, 0, -1, &mr), R2_OK);
    return mr;
}

/* NICs of @refuses refuse GPU memory; staging of @give bytes for each. */
static inline void relay_start(int nics, unsigned refuses, size_t give, const char *const *options)
{
    engine = engine_next;
    engine.refuses = refuses;
    engine.give = give;
    rig_relay =
        (struct rig_relay){.ops = &engine_ops, .verbs = refusing_verbs, .topo = engine.topo};
    race_create(nics, options);
    ib_mr_cache_reaches_set(rig->side[0].inst->mem.mrs, NULL,
                            NULL); /* what the engine is asked for staging is counted */
    for (int n = 0; n < nics; n++) {
        rig->side[0].inst->nics.nic[n].numa_node = engine.nic_node - 1;
    }
    rig_connect(rig, 0, 0);
    s_mr = register_as(IB_PTR_CUDA);
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    for (int n = 0; n < nics; n++) {
        ck_assert_int_eq(ib_mr_lkey(s_mr, n) == 0, refuses >> n & 1);
    }
}

static inline const struct ib_bounce_lane *lane_of(int p)
{
    return comm(0)->tx->lane[p];
}

/* Parts of path @p go by way of a bounce buffer, and none passes the data path's comparison. */
static inline int is_bounced(int p)
{
    int bounced = comm(0)->conn.relay.paths >> p & 1;

    ck_assert(!bounced || comm(0)->conn.path[p].part.one_max == 0);
    return bounced;
}

static inline struct ib_path *s_path(int p)
{
    return &comm(0)->conn.path[p];
}

/* The end, and that nothing of the engine is left but @lost pieces of memory. */
static inline void relay_stop(int lost)
{
    int left = 0;

    rig_destroy(rig);
    rig = NULL;
    for (int i = 0; i < IB_MAX_NICS; i++) {
        left += engine.mem[i] != NULL;
        free(engine.mem[i]);
        engine.mem[i] = NULL;
    }
    ck_assert_int_eq(left, lost);
    if (!lost) {
        ck_assert_uint_eq(engine.lanes, 0);
    }
}

static inline int one_send_done(struct rig *r)
{
    return r->side[0].head == r->side[0].tail;
}

#endif
