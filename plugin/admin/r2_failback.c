#include "r2_failback.h"

#include <stdlib.h>

#include "base/r2_log.h"
#include "core/r2_policy.h"
#include "core/r2_registry.h"
#include "core/r2_visit.h"
#include "r2_commands.h"

int r2_failback_open(struct r2_inst *inst)
{
    inst->drain.failback = calloc(1, sizeof(*inst->drain.failback));
    return inst->drain.failback ? 0 : -1;
}

/* --- who waits --- */

uint32_t r2_failback_waiting(const struct r2_comm *c)
{
    uint32_t mask = 0;

    if (c->inst->cfg.failback != R2_FAILBACK_MANUAL || !c->inst->cfg.failover ||
        atomic_load_explicit(&c->state.setup, memory_order_relaxed) != R2_SETUP_DONE ||
        atomic_load_explicit(&c->state.close, memory_order_relaxed) != R2_CLOSE_OPEN) {
        return 0;
    }
    for (int p = 0; p < c->conn.npaths; p++) {
        mask |= (uint32_t)(!ib_conn_up(&c->conn, p) && !r2_failback_allows(c, p)) << p;
    }
    return mask;
}

/* --- commands of the administrator --- */

void r2_failback_poll(struct r2_inst *inst)
{
    r2_failback_on_command(inst,
                           r2_commands_poll(inst, inst->drain.failback, R2_RUNDIR_FAILBACK, NULL));
}

/* --- connections --- */

/* Own report, or the peer's. */
static void note(struct r2_comm *c, int p)
{
    c->permit.inc[p] = c->conn.path[p].inc;
    c->permit.fresh |= (uint8_t)(1u << p);
    r2_comm_kick(c);
}

static void announce(struct r2_comm *c, int p)
{
    c->permit.unsent |= (uint8_t)(1u << p);
    c->permit.repeat.at = 0;
    c->permit.repeat.interval = (uint64_t)c->inst->cfg.t_repeat_ms * 1000000;
}

static int command_comm(struct r2_comm *c, uint32_t nics)
{
    int n = 0;

    for (int p = 0; p < c->conn.npaths; p++) {
        if ((nics >> c->conn.path[p].nic & 1) && !ib_conn_up(&c->conn, p)) {
            note(c, p);
            announce(c, p);
            n++;
        }
    }
    return n;
}

void r2_failback_on_command(struct r2_inst *inst, uint32_t nics)
{
    int n = 0;

    if (nics == 0) {
        return;
    }
    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        r2_comm_visit(c);
        if (atomic_load_explicit(&c->state.setup, memory_order_relaxed) == R2_SETUP_DONE &&
            atomic_load_explicit(&c->state.close, memory_order_relaxed) == R2_CLOSE_OPEN) {
            n += command_comm(c, nics);
        }
        r2_comm_unvisit(c);
    }
    for (uint32_t m = nics; m; m &= m - 1) {
        R2_INFO("the administrator wants NIC %s used again", inst->nics.nic[__builtin_ctz(m)].name);
    }
    R2_INFO("%d paths may return when their NIC pairs answer", n);
    inst->share.rows_changed = 1;
    r2_inst_wake(inst);
}

static void send(struct r2_comm *c, int p, uint32_t inc, enum fo_type type)
{
    union fo_body b = {
        .failback = {.dst = c->fo.peer, .src = c->id, .inc = inc, .path = (uint8_t)p}};

    r2_peer_emit(c->inst, c->peer, type, &b);
}

uint64_t r2_failback_step(struct r2_comm *c, uint64_t now)
{
    uint64_t longest = (uint64_t)c->inst->cfg.t_repeat_ms * 20000000;

    if (c->permit.unsent == 0 ||
        atomic_load_explicit(&c->state.close, memory_order_relaxed) != R2_CLOSE_OPEN ||
        c->fo.error != R2_OK || c->fo.bye.peer != FO_BYE_NONE) {
        return UINT64_MAX;
    }
    if (now >= c->permit.repeat.at) {
        for (uint32_t m = c->permit.unsent; m; m &= m - 1) {
            int p = __builtin_ctz(m);

            send(c, p, c->permit.inc[p], FO_MSG_FAILBACK);
        }
        c->permit.repeat.at = now + c->permit.repeat.interval;
        c->permit.repeat.interval =
            2 * c->permit.repeat.interval < longest ? 2 * c->permit.repeat.interval : longest;
    }
    return c->permit.repeat.at;
}

/*
 * An incarnation of the peer's that is not older than ours: then ours is over, too, or will be when
 * its DOWN is here. It is ours that is noted, so that no number of the peer's reaches further than
 * what can have failed before it spoke.
 */
void r2_failback_on_record(struct r2_comm *c, const struct fo_failback *m)
{
    int p = m->path;

    if (p >= c->conn.npaths) {
        return;
    }
    send(c, p, m->inc, FO_MSG_FAILBACK_OK);
    if ((int32_t)(m->inc - c->conn.path[p].inc) >= 0 && c->permit.inc[p] != c->conn.path[p].inc) {
        note(c, p);
    }
}

void r2_failback_on_ok(struct r2_comm *c, const struct fo_failback *m)
{
    if (m->path < c->conn.npaths && m->inc == c->permit.inc[m->path]) {
        c->permit.unsent &= (uint8_t) ~(1u << m->path);
    }
}

void r2_failback_on_down(struct r2_comm *c, const struct fo_down *m)
{
    if ((m->reason == IB_FAULT_ADMIN || m->reason == IB_FAULT_REHEARSAL) &&
        m->path < c->conn.npaths && m->inc == c->conn.path[m->path].inc) {
        c->permit.inc[m->path] = m->inc;
    }
}

void r2_failback_next(struct r2_comm *c, int p, uint32_t inc)
{
    if (r2_failback_is_commanded(c, p)) {
        c->permit.inc[p] = inc;
    }
}

void r2_failback_done(struct r2_comm *c, int p)
{
    c->permit.inc[p] = 0;
    c->permit.unsent &= (uint8_t) ~(1u << p);
}

void r2_failback_again(struct r2_comm *c, int p)
{
    if (c->permit.inc[p] == c->conn.path[p].inc) {
        announce(c, p);
    }
}
