/*
 * Nothing waits without need (P35): once R knows what a dead incarnation may still bring, a receive
 * that it holds back is of that, and on an incarnation on which S has posted nothing that is
 * nothing.
 */
#include "sim.h"

#include "plugin/core/r2_inst.h"

static void inc_watch(struct sim_conn *c, int p)
{
    const struct r2_comm *from = c->s.comm, *to = c->r.comm;
    const struct fo_path *fp = &to->fo.path[p];
    const struct r2_parts *live = &from->fo.path[p].live;
    const struct r2_ledger *g = &to->rx->ledger;
    uint32_t inc = to->conn.path[p].inc;

    if (!r2_rule(R2_RULE_LIVE_FROZEN)) {
        return; /* what the sender said is not known any more */
    }
    if (!fp->live_known || fp->state != FO_FENCED || from->conn.path[p].inc != inc) {
        return;
    }
    if (live->n && from->conn.path[p].count.wrs == 0) {
        sim_fail(
            c->sim,
            "conn %d: the sender has posted nothing on path %d incarnation %u, and says that %u may come",
            c->index, p, inc, live->n);
    }
    for (uint64_t seq = g->rdone; seq < g->rpost; seq++) {
        if ((to->rx->msg[seq % R2_LEDGER_WINDOW].quarantined_by >> p & 1) &&
            !r2_parts_of(live, seq)) {
            sim_fail(
                c->sim,
                "conn %d: message %llu is held for path %d incarnation %u, which carries none of it",
                c->index, (unsigned long long)seq, p, inc);
        }
    }
    c->sim->st.told += fp->soft != 0;
}

void sim_quarantine_watch(struct sim *s)
{
    for (int i = 0; i < s->p.conns && !s->failed; i++) {
        struct sim_conn *c = &s->conn[i];

        if (c->s.state != SIM_END_RUN || c->r.state != SIM_END_RUN || c->s.proc->dead ||
            c->r.proc->dead) {
            continue;
        }
        for (int p = 0; p < c->r.comm->conn.npaths; p++) {
            inc_watch(c, p);
        }
    }
}
