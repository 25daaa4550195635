/*
 * Hosts with a NIC of last resort (docs/last-resort.md): the last of each, which NCCL is not shown.
 * What it stands for is TCP, which is slower than RDMA, loses nothing, and whose fence is exact;
 * the fabric's NIC is harsher, since its packets may come late.
 *
 * Nothing goes over it before something has broken, nor once a path over RDMA has been up for a
 * while.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#include "plugin/core/r2_inst.h"
#include "plugin/ib_transport/ib_path.h"

#define LOOKS 10 /* of sim_resort_watch(): for so long an incarnation over RDMA has been up */

static int nic_of_last;

static int last_resort(struct ibv_context *ctx)
{
    return atoi(strpbrk(ctx->device->name, "0123456789")) == nic_of_last ? 10000 : 0; /* Mb/s */
}

void sim_resort_verbs(const struct sim_params *p, struct ib_verbs *verbs)
{
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

/* Whether one incarnation over RDMA has been up at each of the last so many looks. */
static int rdma_is_up_for_long(struct sim_conn *c, const struct ib_conn *l)
{
    int longest = 0;

    for (int p = 0; p < l->npaths; p++) {
        uint32_t inc = ib_conn_rdma(l) >> p & 1 ? l->path[p].inc : 0;

        c->resort.looks[p] = inc && inc == c->resort.inc[p] ? c->resort.looks[p] + 1 : 0;
        c->resort.inc[p] = inc;
        longest = c->resort.looks[p] > longest ? c->resort.looks[p] : longest;
    }
    return longest >= LOOKS;
}

static void conn_watch(struct sim_conn *c)
{
    const struct ib_conn *l = &c->s.comm->conn;
    int back = rdma_is_up_for_long(c, l);

    for (uint32_t m = l->last; m; m &= m - 1) {
        int p = __builtin_ctz(m);
        uint64_t wrs = l->path[p].count.wrs;

        if (wrs == c->resort.wrs[p]) {
            continue;
        }
        if (wrs && !anything_has_fired(c->sim)) {
            sim_fail(c->sim, "conn %d: goes over the last resort, and nothing has happened",
                     c->index);
        }
        if (wrs > c->resort.wrs[p] && back) {
            sim_fail(c->sim, "conn %d: goes over the last resort, and RDMA is back", c->index);
        }
        c->resort.wrs[p] = wrs;
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
