/* Verbs jobs of set-up: everything that may block runs on the devices' workers. */
#include "core/r2_inst.h"

#include "base/r2_rules.h"
#include "core/r2_registry.h"
#include "r2_reconnect.h"
#include "r2_setup.h"

#define BUILD_LIMIT_NS R2_MS(3000) /* a device that brings no job back for so long hangs */
#define BUILD_SHARE                                                                                \
    4 /* of NCCL_R2_CONNECT a step of set-up may take so much, and 3 s; there are three */

static void build_run(struct ib_job *job)
{
    struct r2_build *b = (struct r2_build *)job;
    struct r2_comm *c = b->comm;
    struct ib_path *path = &c->conn.path[b->p];
    uint32_t psn;

    if (b->connect) {
        b->rc = ib_path_connect(&c->conn, path, &b->peer);
        if (b->rc == 0 && c->flush.lane) {
            b->rc = ib_flush_build(c->flush.lane, b->p);
        }
        return;
    }
    /* a path that returns does so on what is read now (P23); of many that are set up the first
     * reads for all */
    if (path->inc != 1 || !ib_nic_addr_is_fresh(&c->inst->nics, path->nic)) {
        ib_nic_refresh(&c->inst->nics, path->nic);
    }
    c->inst->env.random(c->inst->env.arg, &psn, sizeof(psn));
    if (!r2_rule(R2_RULE_NEW_QP) && c->ret->path[b->p].has_old) {
        psn = c->ret->path[b->p].old.psn; /* rule off: the old numbers once more */
        ib_path_destroy(&c->conn, &c->ret->path[b->p].old);
    }
    b->rc = ib_path_create(&c->conn, path, c->is_send, psn);
    if (b->rc == 0) {
        b->rc = c->is_send ? ib_path_connect(&c->conn, path, &b->peer)
                           : ib_path_fill_rq(&c->conn, path);
    }
}

static void build_done(struct ib_job *job)
{
    r2_comm_kick(((struct r2_build *)job)->comm);
}

void r2_build_submit(struct r2_comm *c, int p, int connect)
{
    struct r2_build *b = &c->start->build[p];

    b->comm = c;
    b->p = p;
    b->connect = connect;
    b->rc = 0;
    b->job.run = build_run;
    b->job.done = build_done;
    ib_workers_submit(c->inst->jobs.workers, c->inst->nics.nic[c->conn.path[p].nic].device_index,
                      &b->job);
}

/*
 * Until when path @p, whose job is with its worker, is worth waiting for: as long as the worker
 * brings jobs back, since those of many connections queue there; but no longer than set-up as a
 * whole can afford, however slow the device is.
 */
static uint64_t worth_until(const struct r2_comm *c, int p)
{
    uint64_t alive = c->inst->jobs.alive[c->inst->nics.nic[c->conn.path[p].nic].device_index];
    uint64_t hung =
        (alive > c->start->build_since ? alive : c->start->build_since) + BUILD_LIMIT_NS;
    uint64_t share = R2_MS(c->inst->cfg.t_connect_ms) / BUILD_SHARE;
    uint64_t most = c->start->build_since + (share > BUILD_LIMIT_NS ? share : BUILD_LIMIT_NS);

    return hung < most ? hung : most;
}

/* Whether building has come to an end: every job is back, or a path stands and no other is worth
 * waiting for. Late jobs are given up. */
int r2_build_over(struct r2_comm *c, uint64_t now, uint64_t *next)
{
    uint64_t until = 0;
    int busy = 0, good = 0;

    for (int p = 0; p < c->conn.npaths; p++) {
        if (c->start->build[p].late) {
            continue; /* of an earlier step, or refused by the peer */
        }
        if (c->start->build[p].job.busy) {
            uint64_t t = worth_until(c, p);

            busy = 1;
            until = t > until ? t : until;
        } else {
            good += c->start->build[p].rc == 0;
        }
    }
    if (busy && (good == 0 || now < until)) {
        *next = now < until ? until : now + BUILD_LIMIT_NS;
        return 0;
    }
    for (int p = 0; p < c->conn.npaths; p++) {
        c->start->build[p].late |= c->start->build[p].job.busy != 0;
    }
    return 1;
}

int r2_build_stands(const struct r2_comm *c, int p)
{
    return !c->start->build[p].late && c->start->build[p].rc == 0;
}
