#include "r2_drain.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/r2_log.h"
#include "base/r2_rundir.h"
#include "core/r2_policy.h"
#include "core/r2_registry.h"
#include "core/r2_visit.h"
#include "ib_transport/verbs/ib_hca.h"
#include "probe/diagnosis/r2_gossip.h"
#include "probe/health/r2_pair.h"
#include "probe/health/r2_probation.h"
#include "r2_failback.h"
#include "telemetry/r2_report.h"

static void apply(struct r2_inst *inst, const struct r2_peer *peer);

/* --- which NICs --- */

/* 0, or -1: it cannot be understood, which was said, and *nics is left as it is. */
static int nics_of(const struct r2_inst *inst, const char *list, const char *origin, uint32_t *nics)
{
    struct ib_hca_filter f = {0};
    uint32_t mask = 0;
    char why[160] = "it names no NIC";

    if (list[0] == '\0') {
        *nics = 0;
        return 0;
    }
    if (ib_hca_parse(&f, list, why, sizeof(why)) != 0 || (f.count == 0 && !f.exclude)) {
        R2_WARN("%s: %s: what was drained stays as it is", origin, why);
        return -1;
    }
    for (int i = 0; i < inst->nics.count; i++) {
        if (ib_hca_match(&f, inst->nics.nic[i].dev_name, inst->nics.nic[i].port, NULL)) {
            mask |= 1u << i;
        }
    }
    *nics = mask;
    return 0;
}

/* What the file says beside each NIC that it names, by its port or as a device. */
static void notes_of(const struct r2_inst *inst, const char *text, size_t len,
                     struct r2_drain_file *f)
{
    for (int i = 0; i < inst->nics.count; i++) {
        const struct ib_nic *nic = &inst->nics.nic[i];
        char name[IB_NAME_MAX + 8], note[R2_RUNDIR_NOTE];

        snprintf(name, sizeof(name), "%s:%u", nic->dev_name, nic->port);
        r2_rundir_drain_note(text, len, name, note, sizeof(note));
        if (note[0] == '\0') {
            r2_rundir_drain_note(text, len, nic->dev_name, note, sizeof(note));
        }
        snprintf(f->why[i], sizeof(f->why[i]), "%.*s", R2_DRAIN_WHY - 1,
                 r2_rundir_drain_reason(note));
    }
}

/*
 * Takes up which NICs the drain file of @uid names, none without a file. -1: to be tried again. A
 * file that changes while it is read is read again: its time stamp changes.
 */
static int nics_of_file(const struct r2_inst *inst, const char *path, uid_t uid,
                        struct r2_drain_file *f)
{
    char text[R2_RUNDIR_TEXT_MAX + 1], list[R2_RUNDIR_TEXT_MAX + 8], why[400];
    size_t len;
    int rc = r2_rundir_drain_text(path, uid, text, &len, list, sizeof(list), why, sizeof(why));

    if (rc != 0 && !f->logged) {
        R2_WARN("%s: what was drained stays as it is", why);
    }
    f->logged = rc == R2_RUNDIR_LATER;
    if (rc == 0) {
        notes_of(inst, text, len, f);
        nics_of(inst, list, path, &f->nics);
    }
    return f->logged ? -1 : 0;
}

/* Looks at the file only when it has changed since. */
static void file_poll(struct r2_inst *inst, struct r2_drain_file *f, uid_t uid)
{
    struct r2_rundir_stamp now;
    char path[512];

    if ((f->absent && inst->share.no_new_file) ||
        r2_rundir_drain_path(inst->share.run_dir, uid, path, sizeof(path)) != 0) {
        return;
    }
    f->absent = !r2_rundir_stamp_get(path, &now);
    if (r2_rundir_stamp_same(&now, &f->stamp)) {
        return;
    }
    if (nics_of_file(inst, path, uid, f) ==
        0) { /* else again with the next check, when there is a descriptor */
        f->stamp = now;
    }
}

void r2_drain_poll(struct r2_inst *inst)
{
    uint32_t mask = 0;

    if (inst->cfg.error[0] == '\0') { /* else the job ends at listen, for this or another reason */
        nics_of(inst, inst->cfg.drain, "NCCL_R2_DRAIN", &mask);
    }
    if (inst->share.run_dir[0]) {
        uid_t self = geteuid();

        file_poll(inst, &inst->drain.file[0], 0);
        if (self != 0) {
            file_poll(inst, &inst->drain.file[1], self);
        }
        mask |= inst->drain.file[0].nics | inst->drain.file[1].nics;
    }
    r2_drain_set(inst, mask | inst->drain.rehearsed);
    if (inst->drain.nics && ib_mr_cache_refused(inst->mem.mrs) != inst->drain.refused) {
        apply(inst, NULL);
    }
}

/* --- connections --- */

void r2_drain_comm(struct r2_comm *c)
{
    uint32_t mask = 0, avoid;

    for (int p = 0; p < c->conn.npaths; p++) {
        const struct ib_path *path = &c->conn.path[p];

        mask |= (uint32_t)r2_drain_has(c, p) << p;
        if (mask >> p & 1) { /* that it ends is no failure of the pair, which would have to answer
                                for longer before it is used again */
            r2_probation_used(r2_pair_find(c->inst, c->peer, path->nic, path->peer_nic), 0);
        }
    }
    /* a buffer that another NIC refused may be reachable over the drained one alone */
    avoid = r2_gossip_avoid(c);
    if ((c->conn.up & ~(mask | avoid | c->conn.last)) == 0) {
        avoid = 0; /* a word of others yields to the administrator's */
    }
    fo_drain(&c->fo, mask | avoid | c->conn.last,
             ib_mr_cache_refused(c->inst->mem.mrs) & ~c->inst->drain.nics ? 0 : mask);
}

/* @peer NULL: all. */
static void apply(struct r2_inst *inst, const struct r2_peer *peer)
{
    inst->drain.refused = ib_mr_cache_refused(inst->mem.mrs);
    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        if (c->peer == NULL || (peer && c->peer != peer)) {
            continue;
        }
        r2_comm_visit(c);
        if (atomic_load_explicit(&c->state.setup, memory_order_relaxed) == R2_SETUP_DONE) {
            r2_drain_comm(c);
        }
        r2_comm_unvisit(c);
    }
}

static void announce(struct r2_inst *inst, struct r2_peer *peer)
{
    peer->drain.unsent = 1;
    peer->drain.repeat.at = 0;
    peer->drain.repeat.interval = (uint64_t)inst->cfg.t_repeat_ms * 1000000;
}

void r2_drain_set(struct r2_inst *inst, uint32_t nics)
{
    uint32_t changed = inst->drain.nics ^ nics;

    if (changed == 0) {
        return;
    }
    for (uint32_t m = changed; m; m &= m - 1) {
        int i = __builtin_ctz(m);

        const char *why = nics >> i & 1 ? r2_drain_why(inst, i) : "";

        R2_INFO("NIC %s is %s%s%s%s", inst->nics.nic[i].name,
                nics >> i & 1 ? "drained: new work avoids it" : "not drained any more",
                why[0] ? " (" : "", why, why[0] ? ")" : "");
        r2_report_drain(inst, i, nics >> i & 1, why);
    }
    inst->drain.nics = nics;
    r2_failback_on_command(inst, changed & ~nics); /* the administrator has spoken */
    inst->drain.gen++;
    inst->share.rows_changed = 1;
    for (struct r2_peer *p = inst->index.peers; p; p = p->next) {
        announce(inst, p);
    }
    apply(inst, NULL);
    r2_inst_wake(inst); /* paths that may return now */
}

/* --- peers --- */

void r2_drain_announce(struct r2_inst *inst, struct r2_peer *peer)
{
    if (inst->drain.gen) { /* also that nothing is drained any more: it may have missed that */
        announce(inst, peer);
    }
}

uint64_t r2_drain_send(struct r2_inst *inst, struct r2_peer *peer, uint64_t now)
{
    uint64_t longest = (uint64_t)inst->cfg.t_repeat_ms * 20000000;
    union fo_body b = {.drain = {.nics = inst->drain.nics, .gen = inst->drain.gen}};

    if (!peer->drain.unsent) {
        return UINT64_MAX;
    }
    if (now >= peer->drain.repeat.at) {
        r2_peer_emit(inst, peer, FO_MSG_DRAIN, &b);
        peer->drain.repeat.at = now + peer->drain.repeat.interval;
        peer->drain.repeat.interval =
            2 * peer->drain.repeat.interval < longest ? 2 * peer->drain.repeat.interval : longest;
    }
    return peer->drain.repeat.at;
}

void r2_drain_on_drain(struct r2_inst *inst, struct r2_peer *peer, const struct fo_drain *m)
{
    union fo_body b = {.drain = *m};

    r2_peer_emit(inst, peer, FO_MSG_DRAIN_OK, &b);
    if (peer->drain.heard && (int32_t)(m->gen - peer->drain.gen) <= 0) {
        return; /* known, or late */
    }
    peer->drain.heard = 1;
    peer->drain.gen = m->gen;
    if (peer->drain.nics != m->nics) {
        peer->drain.nics = m->nics;
        apply(inst, peer);
    }
}

void r2_drain_on_ok(const struct r2_inst *inst, struct r2_peer *peer, const struct fo_drain *m)
{
    if (m->gen == inst->drain.gen) {
        peer->drain.unsent = 0;
    }
}

/* What others advise against was weighed again. */
const struct r2_subscriber r2_drain_subscriber = {.on_advice = r2_drain_comm};
