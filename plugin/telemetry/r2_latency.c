#include "r2_latency.h"

#include <stdlib.h>

#include "base/r2_time.h"

struct r2_latency {
    struct r2_hist_live hist[R2_SEND_SIZES];
    uint32_t random;
    /* the message that is timed */
    uint8_t open;              /* there is one */
    uint16_t left;             /* bit per part: not in when it was tested last */
    uint64_t since;            /* ns */
    uint8_t nic[R2_MAX_PARTS]; /* of the first post of each part */
    /* Those that were timed last, for r2_transfer.c: ns, then the size. NCCL's thread writes;
     * each word is a time by itself, and one that is overwritten before it is taken is one less. */
    _Atomic uint64_t recent[R2_LATENCY_RECENT];
    _Atomic uint32_t noted;
    uint32_t taken; /* service thread */
};

/* Numerical Recipes' generator: its upper bits are as good as this needs. */
static uint32_t random_next(struct r2_latency *l)
{
    return l->random = l->random * 1664525u + 1013904223u;
}

/*
 * A number of 1 to R2_LATENCY_EVERY. Every n-th message would be the same message of a collective
 * each time, whose sizes repeat.
 */
static uint32_t some(struct r2_latency *l)
{
    return 1 + (random_next(l) >> 16) % R2_LATENCY_EVERY;
}

struct r2_latency *r2_latency_new(const struct r2_config *cfg)
{
    return cfg->stats ? calloc(1, sizeof(struct r2_latency)) : NULL;
}

uint32_t r2_latency_first(struct r2_latency *l, uint32_t id)
{
    if (l == NULL) {
        return UINT32_MAX;
    }
    l->random = id;
    return some(l);
}

void r2_latency_begin(struct r2_comm *c, struct r2_req *req, const struct ib_smsg *m)
{
    struct r2_latency *l = c->timed.sample;

    if (l == NULL) {
        c->timed.left = UINT32_MAX;
        return;
    }
    c->timed.left = R2_LATENCY_EVERY / 2 + some(l);
    if (l->open) {
        return;
    }
    for (unsigned k = 0; k < m->nparts; k++) {
        l->nic[k] = (uint8_t)c->conn.path[m->part[k].path].nic;
    }
    l->left = (uint16_t)((1u << m->nparts) - 1);
    l->open = 1;
    l->since = r2_now(c->inst);
    req->kind = R2_REQ_SEND_TIMED;
}

/* One of the parts that were out last. */
static unsigned last_part(struct r2_latency *l)
{
    unsigned left = l->left;

    for (unsigned n = some(l) % (unsigned)__builtin_popcount(left); n > 0; n--) {
        left &= left - 1;
    }
    return (unsigned)__builtin_ctz(left);
}

/* The size stands in the two lowest bits. */
static void recent_note(struct r2_latency *l, uint32_t bytes, uint64_t ns)
{
    uint32_t n = atomic_load_explicit(&l->noted, memory_order_relaxed);

    atomic_store_explicit(&l->recent[n % R2_LATENCY_RECENT], ns << 2 | r2_band_size(bytes),
                          memory_order_relaxed);
    atomic_store_explicit(&l->noted, n + 1, memory_order_release); /* behind its word */
}
_Static_assert(R2_BAND_SIZES == 4, "two bits");

void r2_latency_poll(struct r2_comm *c, const struct ib_smsg *m, int done)
{
    struct r2_latency *l = c->timed.sample;
    enum r2_send_size size = m->size <= R2_SEND_SMALL_MAX ? R2_SEND_SMALL : R2_SEND_LARGE;
    uint16_t left = l->left & (uint16_t) ~(m->arrived | m->ledger);
    uint64_t ns;

    if (!l->open) {
        return; /* it waits for its acknowledgement alone */
    }
    if (!done && !ib_send_written(c->tx, m)) {
        l->left = left ? left : l->left;
        return;
    }
    ns = r2_elapsed(r2_now(c->inst), l->since);
    l->open = 0;
    r2_hist_note(&l->hist[size], ns);
    recent_note(l, m->size, ns);
    r2_hist_note(&c->inst->telemetry.latency[l->nic[last_part(l)]][size], ns);
}

void r2_latency_read(const struct r2_comm *c, struct r2_hist out[R2_SEND_SIZES])
{
    for (int s = 0; s < R2_SEND_SIZES; s++) {
        r2_hist_read(&c->timed.sample->hist[s], &out[s]);
    }
}

void r2_latency_read_nic(const struct r2_inst *inst, int nic, struct r2_hist out[R2_SEND_SIZES])
{
    for (int s = 0; s < R2_SEND_SIZES; s++) {
        r2_hist_read(&inst->telemetry.latency[nic][s], &out[s]);
    }
}

int r2_latency_take(struct r2_comm *c, struct r2_latency_one out[R2_LATENCY_RECENT])
{
    struct r2_latency *l = c->timed.sample;
    uint32_t noted = atomic_load_explicit(&l->noted, memory_order_acquire);
    int n = 0;

    if (noted - l->taken > R2_LATENCY_RECENT) {
        l->taken = noted - R2_LATENCY_RECENT;
    }
    for (; l->taken != noted; l->taken++) {
        uint64_t w =
            atomic_load_explicit(&l->recent[l->taken % R2_LATENCY_RECENT], memory_order_relaxed);

        out[n++] = (struct r2_latency_one){.ns = w >> 2, .size = (enum r2_band_size)(w & 3)};
    }
    return n;
}
