/*
 * Hosts with a NIC of last resort (docs/last-resort.md): the last of each, which NCCL is not shown.
 * What it stands for is TCP, which is slower than RDMA, loses nothing, and whose fence is exact;
 * the fabric's NIC is harsher, since its packets may come late. The one before it may be an RDMA
 * NIC that is the last resort of the others.
 *
 * Nothing goes over either before something has broken, nor once a path that is preferred has been
 * up for a while.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#include "plugin/core/r2_inst.h"
#include "plugin/ib_transport/ib_path.h"

#define LOOKS 10 /* of sim_resort_watch(): for so long an incarnation has been up */

static int nic_of_last;
static int (*query_port_real)(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);

static int number_of(struct ibv_context *ctx)
{
    return atoi(strpbrk(ctx->device->name, "0123456789"));
}

static int last_resort(struct ibv_context *ctx)
{
    return number_of(ctx) == nic_of_last ? 10000 : 0; /* Mb/s */
}

static int query_port_slow(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
    int rc = query_port_real(ctx, port, attr);

    if (rc == 0 && number_of(ctx) == nic_of_last - 1) {
        attr->active_width = 1;
        attr->active_speed = 1; /* one lane of 2.5 Gb/s */
    }
    return rc;
}

void sim_resort_verbs(const struct sim_params *p, struct ib_verbs *verbs, struct r2_config *cfg)
{
    if (p->aside) {
        query_port_real = verbs->query_port;
        verbs->query_port = query_port_slow;
        cfg->ib_hca[0] = '\0';
        snprintf(cfg->last_resort, sizeof(cfg->last_resort), "auto");
    }
    if (p->last_nic) {
        nic_of_last = p->nics - 1;
        verbs->last_resort = last_resort;
    }
}

void sim_resort_rates(struct sim *s, struct fab_desc *d)
{
    for (int h = 0; s->p.last_nic && h < d->hosts; h++) {
        d->nic[h][d->nics - 1].rate = sim_pick(&s->rng, 125, 3000) * 1000000ull;
    }
}

static int anything_has_fired(const struct sim *s)
{
    for (int i = 0; i < s->nfaults; i++) {
        if (s->fault[i].fired) {
            return 1;
        }
    }
    return 0;
}

/* The paths of which one incarnation has been up at each of the last so many looks. */
static uint32_t up_for_long(struct sim_conn *c, const struct ib_conn *l)
{
    uint32_t paths = 0;

    for (int p = 0; p < l->npaths; p++) {
        uint32_t inc = l->up >> p & 1 ? l->path[p].inc : 0;

        c->resort.looks[p] = inc && inc == c->resort.inc[p] ? c->resort.looks[p] + 1 : 0;
        c->resort.inc[p] = inc;
        paths |= (uint32_t)(c->resort.looks[p] >= LOOKS) << p;
    }
    return paths;
}

static void conn_watch(struct sim_conn *c)
{
    const struct ib_conn *l = &c->s.comm->conn;
    uint32_t stands = up_for_long(c, l);

    for (uint32_t m = l->last; m; m &= m - 1) {
        int p = __builtin_ctz(m);
        const struct ib_path *path = &l->path[p];
        /* writes of no bytes ask whether an RDMA NIC answers */
        uint64_t moved = l->nics->nic[path->nic].last ? path->count.wrs : path->count.bytes;

        if (moved == c->resort.moved[p]) {
            continue;
        }
        if (moved && !anything_has_fired(c->sim)) {
            sim_fail(c->sim, "conn %d: goes over the last resort, and nothing has happened",
                     c->index);
        }
        if (moved > c->resort.moved[p] && (stands & ~(l->last & ~0u << p))) {
            sim_fail(c->sim, "conn %d: goes over the last resort, path %d, while paths %#x stand",
                     c->index, p, stands);
        }
        c->resort.moved[p] = moved;
        c->sim->st.resorts++;
    }
}

void sim_resort_watch(struct sim *s)
{
    for (int i = 0; s->p.last_nic && i < s->p.conns && !s->failed; i++) {
        if (s->conn[i].s.state == SIM_END_RUN && !s->conn[i].s.proc->dead) {
            conn_watch(&s->conn[i]);
        }
    }
}
