/*
 * Weights that change all the time: what was measured of a path comes and goes at random, plans
 * take in all paths and give them up again, NICs and ends are unequal. What must hold does not
 * depend on weights.
 */
#include "sim.h"

#include "plugin/balance/r2_balance_int.h"
#include "core/r2_registry.h"

static struct r2_comm *some_sender(struct r2_inst *inst, struct fab_rng *r)
{
    struct r2_comm *found = NULL;
    unsigned n = 0;

    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        if (c->is_send && fab_rng_upto(r, n++) == 0) {
            found = c;
        }
    }
    return found;
}

/* Changes since the last whim, of any kind: the schedule is worth nothing without. */
static void changes_count(struct sim *s)
{
    uint64_t h = 0;

    for (int i = 0; i < s->p.procs; i++) {
        if (s->proc[i].dead || !s->proc[i].inst) {
            continue;
        }
        for (struct r2_comm *c = r2_comm_first(s->proc[i].inst); c; c = c->list.all_next) {
            for (int p = 0; c->tx && p < c->tx->plan.n; p++) {
                h = h * 1099511628211ull + c->tx->plan.weight[p] + c->tx->plan.path[p];
            }
        }
    }
    s->st.weights += h != s->weights;
    s->weights = h;
}

static void whim(void *arg)
{
    struct sim *s = arg;
    struct sim_proc *p = &s->proc[fab_rng_upto(&s->whims, (uint64_t)s->p.procs - 1)];
    struct r2_comm *c;

    changes_count(s);
    if (!p->dead && p->inst) {
        sim_proc_enter(p);
        c = some_sender(p->inst, &s->whims);
        if (c && sim_pct(&s->whims, 70)) {
            r2_balance_measured(
                c, (int)fab_rng_upto(&s->whims, 8),
                sim_pct(&s->whims, 20) ? 0 : (uint32_t)sim_pick(&s->whims, 1, 400000),
                sim_pct(&s->whims, 50) ? 0 : (uint32_t)sim_pick(&s->whims, 1, 400000));
        } else if (c && c->flow->is_open && sim_pct(&s->whims, 50)) {
            r2_balance_make_room(c, sim_pct(&s->whims, 60)
                                        ? (uint32_t)fab_rng_upto(&s->whims, 255) & c->flow->usable &
                                              ~ib_conn_pair(&c->conn, 0)
                                        : 0);
        } else if (c) {
            r2_balance_wide(c, sim_pct(&s->whims, 60));
        }
        sim_proc_leave(p);
        sim_proc_kick(p);
    }
    fab_inproc_at(s->f, fab_inproc_now(s->f) + sim_pick(&s->whims, 20 * SIM_US, s->p.whim_ns), whim,
                  s);
}

void sim_weights_rates(struct sim *s, struct fab_desc *d)
{
    static const uint64_t gbps[] = {25, 50, 100, 200, 400};

    s->whims.s = s->seed * 0x2545f4914f6cdd1dull + 11;
    for (int h = 0; s->p.whim_ns && h < d->hosts; h++) {
        for (int n = 0; n < d->nics; n++) {
            d->nic[h][n].rate = gbps[fab_rng_upto(&s->whims, 4)] * 1000000000ull / 8;
        }
    }
}

void sim_weights_start(struct sim *s)
{
    if (s->p.whim_ns) {
        fab_inproc_at(s->f, SIM_US, whim, s);
    }
}
