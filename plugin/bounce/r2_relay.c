#include "r2_relay.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/r2_log.h"
#include "base/r2_numa.h"
#include "core/r2_inst.h"
#include "core/r2_registry.h"

#define GPUS_MAX 64 /* ordinals of a process */

#define ALL ((1u << R2_RELAY_LANES) - 1)

_Static_assert(R2_RELAY_LANES <= 8, "a bit of struct pool.lent for each");

enum pool_state {
    POOL_NONE, /* not made yet */
    POOL_READY,
    POOL_FAILED, /* could not be made, or its engine broke: not tried again */
    POOL_STATES
};

/* Bounce buffer beside one NIC, made when the first buffer needs it. */
struct pool {
    enum pool_state state;
    _Atomic uint8_t wanted; /* relaxed: somebody found no lane since the last one came back. A hint,
                               read without the lock */
    uint8_t lent;           /* bit per lane */
    uint8_t lost; /* ... its ring is written by an engine that does not say when it has ended: never
                     used again */
    uint32_t ring; /* bytes of each lane's; const once it stands */
    struct ib_copy_mem mem;
    struct ib_mr *mr;
    struct ib_bounce_lane lane[R2_RELAY_LANES];
};

/*
 * Threads: @lock guards what lanes are free and whether a pool stands: a leaf below the gates, held
 * for a few instructions. @make is held by whoever makes a pool, which blocks in drivers, so that
 * two threads of NCCL do not make the same one; no gate is taken or held with it.
 */
struct r2_relay {
    struct r2_inst *inst;
    const struct ib_copy_ops *ops;
    void *arg;
    struct r2_relay_ways ways;
    pthread_mutex_t make, lock;
    struct pool pool[IB_MAX_NICS];
};

struct r2_relay *r2_relay_open(struct r2_inst *inst, const struct topo *t,
                               const struct ib_copy_ops *ops, void *arg)
{
    struct r2_relay *r = calloc(1, sizeof(*r));

    if (r == NULL) {
        return NULL;
    }
    r->inst = inst;
    r->ops = ops;
    r->arg = arg;
    pthread_mutex_init(&r->make, NULL);
    pthread_mutex_init(&r->lock, NULL);
    r2_relay_ways_make(&r->ways, &inst->nics, t, (enum r2_relay_mode)inst->cfg.relay);
    return r;
}

/* --- lending --- */

static struct pool *pool_of(const struct r2_comm *c, int p)
{
    return &c->inst->mem.relay->pool[c->conn.path[p].nic];
}

/* The only writer of the state, under @lock. Row: from. */
static void pool_move(const struct r2_relay *r, struct pool *pool, enum pool_state to)
{
    static const char *const names[POOL_STATES] = {"none", "ready", "failed"};
    static const unsigned char legal[POOL_STATES][POOL_STATES] = {
        [POOL_NONE] = {[POOL_READY] = 1, [POOL_FAILED] = 1},
        [POOL_READY] = {[POOL_FAILED] = 1},
        [POOL_FAILED] = {[POOL_FAILED] = 1}, /* each lane that was lent before comes back */
    };

    if (!legal[pool->state][to]) {
        R2_WARN("bounce buffer of NIC %s cannot go from %s to %s",
                r->inst->nics.nic[pool - r->pool].name, names[pool->state], names[to]);
        return;
    }
    pool->state = to;
}

static struct ib_bounce_lane *lane_get(void *arg, int p)
{
    struct pool *pool = pool_of(arg, p);
    struct r2_relay *r = ((struct r2_comm *)arg)->inst->mem.relay;
    struct ib_bounce_lane *lane = NULL;

    pthread_mutex_lock(&r->lock);
    if (pool->state == POOL_READY && (pool->lent | pool->lost) != ALL) {
        int i = __builtin_ctz(~(unsigned)(pool->lent | pool->lost));

        pool->lent |= (uint8_t)(1u << i);
        lane = &pool->lane[i];
    }
    pthread_mutex_unlock(&r->lock);
    if (lane) {
        ib_bounce_init(&lane->ring, pool->ring);
        lane->closing = lane->soft = lane->leaving = 0;
    } else {
        atomic_store_explicit(&pool->wanted, 1, memory_order_relaxed);
    }
    return lane;
}

static int lane_wanted(void *arg, int p)
{
    return atomic_load_explicit(&pool_of(arg, p)->wanted, memory_order_relaxed);
}

static void lane_put(void *arg, int p, struct ib_bounce_lane *lane)
{
    struct pool *pool = pool_of(arg, p);
    struct r2_relay *r = ((struct r2_comm *)arg)->inst->mem.relay;
    uint8_t bit = (uint8_t)(1u << (lane - pool->lane));

    pthread_mutex_lock(&r->lock);
    pool->lent &= (uint8_t)~bit;
    pool->lost |= lane->lost ? bit : 0;
    if (lane->broken || lane->lost) {
        pool_move(r, pool, POOL_FAILED);
    }
    pthread_mutex_unlock(&r->lock);
    atomic_store_explicit(&pool->wanted, 0,
                          memory_order_relaxed); /* who still waits announces it again */
}

/* --- making --- */

/* CUDA's number of the GPU at @pci in this process; IB_COPY_HOST: it is hidden from it. */
static int ordinal_of(const struct r2_relay *r, const char *pci)
{
    char text[TOPO_BDF];

    for (int g = 0; g < GPUS_MAX && r->ops->gpu_pci(r->arg, g, text, sizeof(text)) == 0; g++) {
        if (strcmp(text, pci) == 0) {
            return g;
        }
    }
    return IB_COPY_HOST;
}

/* In ways.gpu; -1: the topology does not know it. */
static int known_as(const struct r2_relay *r, int ordinal)
{
    char text[TOPO_BDF];

    if (r->ops->gpu_pci(r->arg, ordinal, text, sizeof(text)) != 0) {
        return -1;
    }
    for (int g = 0; g < r->ways.gpus; g++) {
        if (strcmp(r->ways.gpu[g], text) == 0) {
            return g;
        }
    }
    return -1;
}

/* What somebody may read or write still stays as it is. */
static void pool_free(struct r2_relay *r, struct pool *pool)
{
    uint8_t used = pool->lent | pool->lost;

    for (int i = 0; i < R2_RELAY_LANES; i++) {
        if (pool->lane[i].copies && !(used >> i & 1)) {
            r->ops->lane_close(r->arg, pool->lane[i].copies);
            pool->lane[i].copies = NULL;
        }
    }
    if (used) {
        return;
    }
    ib_mr_put(r->inst->mem.mrs, pool->mr);
    pool->mr = NULL;
    if (pool->mem.addr) {
        r->ops->mem_put(r->arg, &pool->mem);
        pool->mem.addr = NULL;
    }
}

/* Rings of equal size. 0 or errno. */
static int lanes_make(struct r2_relay *r, struct pool *pool, int from, int to)
{
    uint32_t size = (uint32_t)(pool->mem.len / R2_RELAY_LANES);

    for (int i = 0; i < R2_RELAY_LANES; i++) {
        struct ib_bounce_lane *lane = &pool->lane[i];
        int rc;

        ib_bounce_init(&lane->ring, size);
        pool->ring = lane->ring.size;
        lane->mem = (uint8_t *)pool->mem.addr + (size_t)i * size;
        lane->mr = pool->mr;
        lane->ops = r->ops;
        lane->arg = r->arg;
        rc = r->ops->lane_open(r->arg, from, to, IB_BOUNCE_ENTRIES, &lane->copies);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

/*
 * @make is held. Copies from GPU @from to GPU @to (or the host, near the NIC: what crosses sockets
 * is better written than read), and from there over @nic. 0 or errno.
 */
static int pool_make(struct r2_relay *r, struct pool *pool, int nic, int from, int to)
{
    size_t len = (size_t)r->inst->cfg.relay_mib << 20;
    int near = to == IB_COPY_HOST && r2_numa_prefer(r->inst->nics.nic[nic].numa_node) == 0;
    int rc = r->ops->mem_get(r->arg, to, len, &pool->mem);

    if (near) {
        r2_numa_forget();
    }
    if (rc != 0) {
        pool->mem.addr = NULL;
        return rc;
    }
    pool->mr = ib_mr_get(r->inst->mem.mrs, pool->mem.addr, pool->mem.len, pool->mem.type, 0,
                         pool->mem.dmabuf_fd, 1ull << nic);
    if (pool->mr == NULL) {
        return errno ? errno : ENOMEM;
    }
    return lanes_make(r, pool, from, to);
}

/* 1: @nic has bounce buffer. @make is held. */
static int pool_ready(struct r2_relay *r, int nic, int from, struct r2_relay_way way)
{
    struct pool *pool = &r->pool[nic];
    int to = way.kind == R2_RELAY_GPU ? ordinal_of(r, r->ways.gpu[way.relay]) : IB_COPY_HOST, rc;
    enum pool_state state;
    char where[32];

    pthread_mutex_lock(&r->lock);
    state = pool->state;
    pthread_mutex_unlock(&r->lock);
    if (state != POOL_NONE) {
        return state == POOL_READY;
    }
    rc = pool_make(r, pool, nic, from, to);
    snprintf(where, sizeof(where), to == IB_COPY_HOST ? "host" : "GPU %d", to);
    if (rc != 0) {
        pool_free(r, pool);
        R2_WARN("NIC %s: no %lld MiB of bounce buffer (NCCL_R2_RELAY_MEMORY) of %s: %s",
                r->inst->nics.nic[nic].name, (long long)r->inst->cfg.relay_mib, where,
                strerror(rc));
    } else {
        R2_INFO("NIC %s: %lld MiB of bounce buffer of %s, for what GPU %d sends over it",
                r->inst->nics.nic[nic].name, (long long)r->inst->cfg.relay_mib, where, from);
    }
    pthread_mutex_lock(&r->lock);
    pool_move(r, pool, rc == 0 ? POOL_READY : POOL_FAILED);
    pthread_mutex_unlock(&r->lock);
    return rc == 0;
}

/* Paths of @c whose NICs are in @bounced. Gate held. */
static void paths_set(struct r2_relay *r, struct r2_comm *c, uint32_t bounced)
{
    struct ib_relay *relay = &c->conn.relay;

    relay->arg = c;
    relay->lane_get = lane_get;
    relay->lane_wanted = lane_wanted;
    relay->lane_put = lane_put;
    for (int p = 0; p < c->conn.npaths; p++) {
        if (bounced >> c->conn.path[p].nic & 1) {
            uint32_t ring = r->pool[c->conn.path[p].nic].ring;

            relay->ring = relay->paths && relay->ring < ring ? relay->ring : ring;
            IB_RLX_SET(relay->paths, relay->paths | 1u << p);
        }
    }
    ib_send_replan(c->tx);
    r2_comm_kick(c); /* other links, other weights */
}

void r2_relay_buffer(struct r2_comm *c, const void *addr, struct ib_mr *mr, uint64_t nics)
{
    struct r2_relay *r = c->inst->mem.relay;
    uint32_t bounced = 0;
    int from, gpu;

    if (r == NULL || !c->is_send || mr->type == IB_PTR_HOST ||
        (from = r->ops->gpu_of(r->arg, addr)) == IB_COPY_HOST) {
        return;
    }
    pthread_mutex_lock(&r->make);
    gpu = known_as(r, from);
    for (uint64_t left = nics; left; left &= left - 1) {
        int nic = __builtin_ctzll(left);
        struct r2_relay_way way = r2_relay_way_get(&r->ways, gpu, nic, ib_mr_lkey(mr, nic) != 0);

        if (way.kind != R2_RELAY_NONE && pool_ready(r, nic, from, way)) {
            bounced |= 1u << nic;
        }
    }
    pthread_mutex_unlock(&r->make);
    if (bounced) {
        r2_gate_visit(&c->gate);
        paths_set(r, c, bounced);
        r2_gate_unvisit(&c->gate);
    }
}

void r2_relay_close(struct r2_relay *r)
{
    if (r == NULL) {
        return;
    }
    for (int i = 0; i < IB_MAX_NICS; i++) {
        pool_free(r, &r->pool[i]);
    }
    pthread_mutex_destroy(&r->make);
    pthread_mutex_destroy(&r->lock);
    free(r);
}
