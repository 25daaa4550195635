#include "r2_failback.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/r2_log.h"
#include "core/r2_policy.h"
#include "core/r2_registry.h"
#include "core/r2_visit.h"
#include "ib_transport/verbs/ib_hca.h"

/* A file of fail-back commands as it was when it was read last. */
struct r2_failback_file {
    struct r2_rundir_stamp stamp;
    uint64_t number[IB_MAX_NICS]; /* of the command that was taken up last; 0: none */
    int logged;
    int primed; /* what it held when it was read first was said before anything could fail here */
};

int r2_failback_open(struct r2_inst *inst)
{
    inst->drain.failback = calloc(2, sizeof(*inst->drain.failback));
    return inst->drain.failback ? 0 : -1;
}

/* --- who waits --- */

uint32_t r2_failback_waiting(const struct r2_comm *c)
{
    uint32_t mask = 0;

    if (c->inst->cfg.failback != R2_FAILBACK_MANUAL || !c->inst->cfg.failover ||
        atomic_load_explicit(&c->setup, memory_order_relaxed) != R2_SETUP_DONE ||
        atomic_load_explicit(&c->close, memory_order_relaxed) != R2_CLOSE_OPEN) {
        return 0;
    }
    for (int p = 0; p < c->conn.npaths; p++) {
        mask |= (uint32_t)(!ib_conn_up(&c->conn, p) && !r2_failback_allows(c, p)) << p;
    }
    return mask;
}

/* --- commands of the administrator --- */

static int names_nic(const char *name, const struct ib_nic *nic)
{
    struct ib_hca_filter f = {0};
    char list[72], why[160];

    if (strcmp(name, "*") == 0) {
        return 1;
    }
    snprintf(list, sizeof(list), "=%.64s", name);
    return ib_hca_parse(&f, list, why, sizeof(why)) == 0 &&
           ib_hca_match(&f, nic->dev_name, nic->port, NULL);
}

/* NICs about which the commands hold another number than @f knows, which it does then. */
static uint32_t fresh_commands(const struct r2_inst *inst, struct r2_failback_file *f,
                               const struct r2_rundir_command *command, int n)
{
    uint32_t nics = 0;

    for (int i = 0; i < inst->nics.count; i++) {
        uint64_t number = 0;

        for (int k = 0; k < n; k++) {
            if (command[k].number > number && names_nic(command[k].name, &inst->nics.nic[i])) {
                number = command[k].number;
            }
        }
        if (number != f->number[i]) {
            nics |= (uint32_t)(number != 0) << i; /* 0: a file that is gone commands nothing */
            f->number[i] = number;
        }
    }
    return nics;
}

/* As r2_rundir_failback_parse, with the file named in @why. */
static int commands_parse(const char *path, const char *text, size_t len,
                          struct r2_rundir_command *command, char *why, size_t why_len)
{
    char reason[128];
    int n = r2_rundir_failback_parse(text, len, command, reason, sizeof(reason));

    if (n < 0) {
        snprintf(why, why_len, "%s: %s", path, reason);
    }
    return n;
}

/* What the file says anew; nothing when it is as it was. */
static uint32_t file_poll(const struct r2_inst *inst, struct r2_failback_file *f, uid_t uid)
{
    char path[512], text[R2_RUNDIR_TEXT_MAX + 1], why[700];
    struct r2_rundir_command command[R2_RUNDIR_NAMES];
    struct r2_rundir_stamp now;
    uint32_t nics;
    size_t len;
    int rc, n;

    if (r2_rundir_failback_path(inst->share.run_dir, uid, path, sizeof(path)) != 0) {
        return 0;
    }
    r2_rundir_stamp_get(path, &now);
    if (f->primed && r2_rundir_stamp_same(&now, &f->stamp)) {
        return 0;
    }
    rc = r2_rundir_text(path, uid, text, &len, why, sizeof(why));
    n = rc == 0 ? commands_parse(path, text, len, command, why, sizeof(why)) : -1;
    if (n < 0 && (!f->logged || !r2_rundir_stamp_same(&now, &f->stamp))) {
        R2_WARN("%s: no command is taken from it", why);
    }
    f->logged = n < 0;
    if (rc != R2_RUNDIR_LATER) {
        f->stamp = now;
    }
    if (n < 0) {
        return 0;
    }
    nics = fresh_commands(inst, f, command, n);
    nics = f->primed ? nics : 0;
    f->primed = 1;
    return nics;
}

void r2_failback_poll(struct r2_inst *inst)
{
    uid_t self = geteuid();
    uint32_t nics;

    if (inst->share.run_dir[0] == '\0') {
        return;
    }
    nics = file_poll(inst, &inst->drain.failback[0], 0);
    if (self != 0) {
        nics |= file_poll(inst, &inst->drain.failback[1], self);
    }
    r2_failback_on_command(inst, nics);
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
        if (atomic_load_explicit(&c->setup, memory_order_relaxed) == R2_SETUP_DONE &&
            atomic_load_explicit(&c->close, memory_order_relaxed) == R2_CLOSE_OPEN) {
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
        atomic_load_explicit(&c->close, memory_order_relaxed) != R2_CLOSE_OPEN ||
        c->fo.error != R2_OK || c->fo.peer_bye != FO_BYE_NONE) {
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
    if (m->reason == IB_FAULT_ADMIN && m->path < c->conn.npaths &&
        m->inc == c->conn.path[m->path].inc) {
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
