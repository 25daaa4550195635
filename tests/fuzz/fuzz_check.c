#include "fuzz_rig.h"

#include "plugin/probe/health/r2_pair.h"
#include "core/r2_registry.h"
#include "service/r2_reconnect.h"

#define SAID_MIN 20000 /* records that may be said at once, and per ms */
#define SAID_MS  20

static void check_send(const struct r2_comm *c)
{
    const struct ib_send *tx = c->tx;

    FUZZ_CHECK(tx->sack <= tx->unmatched && tx->group <= tx->unmatched &&
               tx->group <= tx->cts_seen);
    FUZZ_CHECK(tx->cts_seen - tx->group <= R2_LEDGER_WINDOW && tx->sposted <= tx->cts_seen);
    FUZZ_CHECK(tx->ring_hot->index < c->conn.npaths);
    for (unsigned i = 0; i < R2_LEDGER_WINDOW; i++) {
        const struct ib_smsg *m = &tx->msg[i];
        unsigned out = 0;

        if (!m->busy) {
            continue;
        }
        FUZZ_CHECK(m->nparts >= 1 && m->nparts <= R2_MAX_PARTS &&
                   !((m->unposted | m->ledger) >> m->nparts));
        for (unsigned k = 0; k < m->nparts; k++) {
            FUZZ_CHECK(m->part[k].path < c->conn.npaths);
            out += m->part[k].wr_out;
        }
        FUZZ_CHECK(out == m->wrs_out);
    }
}

static void check_recv(const struct r2_comm *c)
{
    const struct r2_ledger *g = &c->rx->ledger;

    FUZZ_CHECK(g->rdone <= g->acked && g->acked <= g->rpost &&
               g->rpost - g->rdone <= R2_LEDGER_WINDOW);
    FUZZ_CHECK(c->rx->ctl_path < c->conn.npaths || c->rx->ctl_path == IB_MAX_PATHS);
}

static void check_comm(const struct r2_comm *c)
{
    int setup = atomic_load(&c->state.setup);

    FUZZ_CHECK(c->conn.npaths >= 0 && c->conn.npaths <= IB_MAX_PATHS && setup >= 0 &&
               setup < R2_SETUP_COUNT);
    FUZZ_CHECK(!(c->conn.up >> c->conn.npaths));
    for (int p = 0; p < c->conn.npaths; p++) {
        const struct ib_path *path = &c->conn.path[p];

        FUZZ_CHECK(path->index == p && path->nic < c->inst->nics.count &&
                   path->peer_nic < IB_MAX_NICS);
        FUZZ_CHECK(c->ret->path[p].state < R2_RET_COUNT && path->sq.used <= path->cap.sq_depth);
        FUZZ_CHECK(!ib_conn_up(&c->conn, p) || c->fo.path[p].state == FO_UP);
        FUZZ_CHECK(!ib_conn_up(&c->conn, p) || (path->qp && path->cq && path->open));
    }
    if (setup == R2_SETUP_DONE && c->is_send) {
        check_send(c);
    } else if (setup == R2_SETUP_DONE) {
        check_recv(c);
    }
}

void fuzz_rig_check(struct rig *rig, uint64_t said)
{
    for (int i = 0; i < 2; i++) {
        struct r2_inst *inst = rig->side[i].inst;

        for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
            check_comm(c);
        }
        for (struct r2_pair *p = inst->index.pairs; p; p = p->next) {
            FUZZ_CHECK(p->nic < inst->nics.count && p->peer_nic < IB_MAX_NICS &&
                       p->build.state < R2_PAIR_STATES);
        }
    }
    /* whatever was said to them, two processes must not answer each other for ever */
    FUZZ_CHECK(said <= SAID_MIN + SAID_MS * (rig_now(rig) / RIG_MS));
}
