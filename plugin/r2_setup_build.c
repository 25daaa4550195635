/* Verbs jobs of set-up: everything that may block runs on the devices' workers. */
#include "r2_inst.h"
#include "r2_rules.h"

#define MS(x) ((uint64_t)(x) * 1000000)
#define BUILD_LIMIT_NS MS(3000) /* as long as one path stands, set-up does not wait longer for the others */

static void build_run(struct ib_job *job)
{
    struct r2_build *b = (struct r2_build *)job;
    struct r2_comm *c = b->comm;
    struct ib_path *path = &c->link.path[b->p];
    uint32_t psn;

    if (b->connect) {
        b->rc = ib_path_connect(&c->link, path, &b->peer);
        if (b->rc == 0 && c->flush) {
            ib_flush_build(c->flush, b->p);
        }
        return;
    }
    ib_nic_refresh(&c->inst->nics, path->nic);
    c->inst->env.random(c->inst->env.arg, &psn, sizeof(psn));
    if (!r2_rule(R2_RULE_NEW_QP) && c->ret[b->p].has_old) {
        psn = c->ret[b->p].old.psn; /* rule off: the old numbers once more */
        ib_path_destroy(&c->link, &c->ret[b->p].old);
    }
    b->rc = ib_path_create(&c->link, path, c->is_send, psn);
    if (b->rc == 0) {
        b->rc = c->is_send ? ib_path_connect(&c->link, path, &b->peer) : ib_path_fill_rq(&c->link, path);
    }
}

static void build_done(struct ib_job *job)
{
    r2_comm_kick(((struct r2_build *)job)->comm);
}

void r2_build_submit(struct r2_comm *c, int p, int connect)
{
    struct r2_build *b = &c->build[p];

    b->comm = c;
    b->p = p;
    b->connect = connect;
    b->rc = 0;
    b->job.run = build_run;
    b->job.done = build_done;
    ib_workers_submit(c->inst->workers, c->inst->nics.nic[c->link.path[p].nic].device_index, &b->job);
}

/* Whether building has come to an end: every job is back, or one stands and the time is over. Late jobs are given up. */
int r2_build_over(struct r2_comm *c, uint64_t now, uint64_t *next)
{
    int busy = 0, good = 0;

    for (int p = 0; p < c->link.npaths; p++) {
        busy += c->build[p].job.busy != 0;
        good += !c->build[p].job.busy && c->build[p].rc == 0 && !c->build[p].late;
    }
    if (busy && (good == 0 || r2_elapsed(now, c->build_since) < BUILD_LIMIT_NS)) {
        *next = c->build_since + BUILD_LIMIT_NS > now ? c->build_since + BUILD_LIMIT_NS : now + BUILD_LIMIT_NS;
        return 0;
    }
    for (int p = 0; p < c->link.npaths; p++) {
        c->build[p].late |= c->build[p].job.busy != 0;
    }
    return 1;
}

int r2_build_stands(const struct r2_comm *c, int p)
{
    return !c->build[p].late && c->build[p].rc == 0;
}
