/*
 * Bounce buffer in virtual time: "GPU" memory that some NICs do not take, and an engine whose
 * copies end late, in the order in which they began. What a copy reads it reads at its end: a
 * buffer that was given back too early has other contents by then.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ib_transport/ib_copy.h"
#include "ib_transport/ib_bounce.h"
#include "tests/sim/sim.h"

#define RINGS 8 /* as many as a pool is divided into */

struct sim_copy {
    struct sim_lane *lane;
    uint64_t sum; /* of what it reads, when it began */
    void *dst;
    const void *src;
    size_t len;
    int runs;
};

struct sim_lane {
    struct sim_proc *proc;
    uint64_t last; /* ns: the end of the copy begun last */
    struct sim_copy slot[IB_BOUNCE_ENTRIES];
};

static int gpu_of(void *arg, const void *addr)
{
    (void)arg;
    (void)addr;
    return 0;
}

static int gpu_pci(void *arg, int gpu, char *out, size_t len)
{
    (void)arg;
    (void)gpu;
    (void)out;
    (void)len;
    return ENODEV;
}

/* Rings from one message to a few. */
static int mem_get(void *arg, int gpu, size_t len, struct ib_copy_mem *out)
{
    struct sim_proc *p = arg;
    size_t ring =
        (size_t)p->sim->p.max_size * (1 + fab_rng_upto(&p->rng, 3)) + fab_rng_upto(&p->rng, 4096);

    (void)gpu;
    *out = (struct ib_copy_mem){
        .len = RINGS * ring < len ? RINGS * ring : len, .type = IB_PTR_HOST, .dmabuf_fd = -1};
    return posix_memalign(&out->addr, 4096, out->len);
}

static void mem_put(void *arg, struct ib_copy_mem *mem)
{
    (void)arg;
    free(mem->addr);
}

static int lane_open(void *arg, int from, int to, unsigned slots, void **lane)
{
    struct sim_lane *l = calloc(1, sizeof(*l));

    (void)from;
    (void)to;
    if (l == NULL || slots > IB_BOUNCE_ENTRIES) {
        free(l);
        return ENOMEM;
    }
    l->proc = arg;
    *lane = l;
    return 0;
}

static void lane_close(void *arg, void *lane)
{
    struct sim_lane *l = lane;
    const struct sim_proc *p = arg;

    for (unsigned i = 0; i < IB_BOUNCE_ENTRIES; i++) {
        if (l->slot[i].runs) {
            sim_fail(p->sim, "process %d closes a lane while copies run", p->index);
        }
    }
    free(l);
}

static uint64_t sum_of(const uint8_t *at, size_t len)
{
    uint64_t sum = len;

    for (size_t i = 0; i < len; i++) {
        sum = (sum ^ at[i]) * 0x100000001b3ull; /* FNV-1a */
    }
    return sum;
}

static void copy_end(void *arg)
{
    struct sim_copy *c = arg;
    struct sim_proc *p = c->lane->proc;

    memcpy(c->dst, c->src, c->len);
    c->runs = 0;
    if (!p->dead && !p->sim->aborted && sum_of(c->src, c->len) != c->sum) {
        sim_fail(
            p->sim,
            "process %d: a copy of %zu bytes runs while its buffer is used for another message",
            p->index, c->len);
    }
}

/* A NIC that takes the senders' memory may be the only way from now on, and then die. */
static void engine_broken(struct sim_proc *p)
{
    for (int n = 0; n < p->sim->p.nics; n++) {
        if (p->sim->p.copy_nics >> n & 1) {
            sim_broken_nic(p->sim, p->host, n);
        }
    }
    for (int i = 0; i < p->sim->p.conns; i++) {
        p->sim->conn[i].may_fail |= p->sim->conn[i].s.proc == p;
    }
}

static int begin(void *arg, void *lane, unsigned slot, void *dst, const void *src, size_t len)
{
    struct sim_lane *l = lane;
    struct sim_proc *p = arg;
    struct sim *s = p->sim;
    struct sim_copy *c = &l->slot[slot];
    uint64_t at = fab_inproc_now(s->f) + sim_delay_draw(&s->p.copy, &p->rng);

    if (slot >= IB_BOUNCE_ENTRIES || c->runs) {
        sim_fail(s, "process %d begins copy %u, which runs", p->index, slot);
    }
    if (s->p.copy_fail_ppm && fab_rng_chance(&p->rng, s->p.copy_fail_ppm)) {
        engine_broken(p);
        s->st.copies_refused++;
        return EIO;
    }
    l->last = at > l->last ? at : l->last + 1;
    *c = (struct sim_copy){
        .lane = l, .dst = dst, .src = src, .len = len, .sum = sum_of(src, len), .runs = 1};
    s->st.copies++;
    fab_inproc_at(s->f, l->last, copy_end, c);
    return 0;
}

static int done(void *arg, void *lane, unsigned slot)
{
    struct sim_lane *l = lane;

    (void)arg;
    return !l->slot[slot].runs;
}

const struct ib_copy_ops sim_copy_ops = {.gpu_of = gpu_of,
                                         .gpu_pci = gpu_pci,
                                         .mem_get = mem_get,
                                         .mem_put = mem_put,
                                         .lane_open = lane_open,
                                         .lane_close = lane_close,
                                         .begin = begin,
                                         .done = done};

/* --- NICs that do not take the memory of a GPU --- */

static struct ib_verbs plain;

static int refused(const struct ibv_pd *pd, const void *addr)
{
    const struct sim *s = sim_now_running;
    const char *name = plain.get_device_name(pd->context->device);
    uintptr_t at = (uintptr_t)addr;

    for (int i = 0; i < s->p.conns; i++) {
        uintptr_t low = (uintptr_t)sim_arena_region(i, 1);

        if (at >= low && at - low < SIM_REGION_BYTES &&
            (s->p.copy_nics >> (name[strlen(name) - 1] - '0') & 1)) {
            errno = EFAULT;
            return 1;
        }
    }
    return 0;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
    return refused(pd, addr) ? NULL : plain.reg_mr(pd, addr, len, access);
}

static struct ibv_mr *reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
                                   unsigned access)
{
    return refused(pd, addr) ? NULL : plain.reg_mr_iova2(pd, addr, len, iova, access);
}

void sim_copy_verbs(struct ib_verbs *verbs)
{
    plain = *verbs;
    verbs->reg_mr = reg_mr;
    if (plain.reg_mr_iova2) {
        verbs->reg_mr_iova2 = reg_mr_iova2;
    }
}
