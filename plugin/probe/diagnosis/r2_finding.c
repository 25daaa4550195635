#include "r2_finding.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/r2_notify.h"
#include "core/r2_registry.h"
#include "probe/health/r2_counters.h"
#include "probe/health/r2_pair.h"

_Static_assert(R2_CAUSE_COUNTERS >= IB_COUNTERS && R2_CAUSE_EVIDENCE >= R2_EVIDENCE,
               "room for all");

static void add(char *list, size_t room, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void add(char *list, size_t room, const char *fmt, ...)
{
    size_t n = strlen(list), before = n;
    va_list ap;

    if (n && n + 1 < room) {
        list[n++] = ',';
    }
    va_start(ap, fmt);
    if ((size_t)vsnprintf(list + n, room - n, fmt, ap) >= room - n) {
        list[before] = '\0'; /* whole words only */
    }
    va_end(ap);
}

static void add_end(char *how, size_t room, const char *whose, const struct probe_end *e)
{
    if (e->port == PROBE_PORT_DOWN || e->port == PROBE_PORT_GONE) {
        add(how, room, "%s-port:%s", whose, r2_evidence_port(e->port));
    }
    if (e->loop != PROBE_NA) {
        add(how, room, "%s-loop:%s", whose, e->loop == PROBE_OK ? "ok" : "silent");
    }
    if (e->aux != PROBE_NA) {
        add(how, room, "%s-aux:%s", whose, e->aux == PROBE_OK ? "ok" : "silent");
    }
}

/* Of the NIC that is named, if it is ours: what its link has suffered. */
static void add_counters(const struct r2_inst *inst, const struct r2_case *k, struct r2_finding *f)
{
    const struct ib_counters *start, *last;

    if (r2_blame_is_remote(f->v.blame) || f->v.blame == PROBE_BLAME_PEER ||
        !r2_counters_get(inst, k->nic, k->since, &start, &last)) {
        return;
    }
    for (int i = 0; i < IB_COUNTERS_LINK; i++) {
        uint64_t by = ib_counters_grown(start, last, i);

        if (by) {
            add(f->how, sizeof(f->how), "%s:+%llu", ib_counters_name(i), (unsigned long long)by);
        }
    }
}

static void what_was_measured(const struct r2_inst *inst, const struct r2_case *k,
                              struct r2_finding *f)
{
    const struct probe_facts *x = &k->facts;

    if (k->fault != IB_FAULT_NONE && k->fault != IB_FAULT_PEER) {
        snprintf(f->how, sizeof(f->how), "%s", ib_fault_name(k->fault));
        for (char *p = strchr(f->how, ' '); p; p = strchr(p, ' ')) {
            *p = '-'; /* one word of the line */
        }
    }
    if (x->direct != PROBE_NA) {
        add(f->how, sizeof(f->how), "pair:%s", x->direct == PROBE_OK ? "ok" : "silent");
    }
    add_end(f->how, sizeof(f->how), "our", &x->local);
    add_end(f->how, sizeof(f->how), "its", &x->remote);
    if (x->peer == PROBE_ERROR || x->peer == PROBE_TIMEOUT) {
        add(f->how, sizeof(f->how), "process:%s", x->peer == PROBE_ERROR ? "refused" : "silent");
    }
    add_counters(inst, k, f);
}

/* What the fault does to this process, as its connections stand now. */
struct effect {
    unsigned moved;    /* connections that lost a path over what is blamed and go on */
    int stranded;      /* ... that have none left */
    uint32_t to;       /* bit per NIC: where those go on */
    uint32_t over;     /* bit per NIC: of paths that are up, of any connection; */
    uint32_t lost;     /* ... that are not */
    uint64_t stall_us; /* of those that moved and waited: the longest; 0: none, or not over yet, or
                          nobody looks (r2_report.h) */
};

static bool is_remote_nic(const struct r2_inst *inst, const struct r2_case *k,
                          const struct r2_comm *c, int p)
{
    const struct ib_path *path = &c->conn.path[p];
    const struct r2_pair *pair;

    if (c->peer == NULL || (c->peer == k->peer && path->peer_nic == k->peer_nic)) {
        return c->peer != NULL;
    }
    pair = k->peer_guid && strcmp(c->peer->host, k->peer->host) == 0
               ? r2_pair_find(inst, c->peer, path->nic, path->peer_nic)
               : NULL;
    return pair && pair->far.guid == k->peer_guid && pair->far.port == k->peer_port;
}

/* Whether path @p goes over what is blamed; for what is not one NIC's, over the pair. */
static bool is_over(const struct r2_inst *inst, const struct r2_case *k, enum probe_blame blame,
                    const struct r2_comm *c, int p)
{
    int ours = c->conn.path[p].nic == k->nic;

    switch (blame) {
    case PROBE_BLAME_LOCAL_NIC:
    case PROBE_BLAME_LOCAL_LINK:
        return ours;
    case PROBE_BLAME_REMOTE_NIC:
    case PROBE_BLAME_REMOTE_LINK:
        return is_remote_nic(inst, k, c, p);
    default:
        return ours && (k->peer == NULL || is_remote_nic(inst, k, c, p));
    }
}

/* No gate is held. */
static struct effect effect_of(struct r2_inst *inst, const struct r2_case *k,
                               const struct r2_finding *f)
{
    struct effect e = {0};
    int waits = 0;

    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        uint32_t up, carrying, nics = 0, to = 0, lost = 0, over = 0;
        int hit;

        if (atomic_load_explicit(&c->state.setup, memory_order_relaxed) != R2_SETUP_DONE) {
            continue;
        }
        up = IB_RLX_GET(c->conn.up); /* of each path, as of a moment ago */
        carrying = ib_conn_carrying(&c->conn, up);
        for (int p = 0; p < c->conn.npaths; p++) {
            to |= (carrying >> p & 1) << c->conn.path[p].nic;
            *(up >> p & 1 ? &nics : &lost) |= 1u << c->conn.path[p].nic;
            over |= (uint32_t)is_over(inst, k, (enum probe_blame)f->v.blame, c, p) << p;
        }
        hit = (over & ~up) != 0;
        e.over |= nics;
        e.lost |= lost;
        e.moved += hit && up;
        e.stranded |= over && (up & ~over) == 0 && (up == 0 || f->v.blame != PROBE_BLAME_NONE);
        e.to |= hit ? to & ~(1u << k->nic) : 0;
        waits |= hit && c->seen.stall_from;
        if (hit && c->seen.stall_at / 1000000 >= f->report.since_ms &&
            c->seen.stall_ns / 1000 > e.stall_us) {
            e.stall_us = c->seen.stall_ns / 1000;
        }
    }
    e.stall_us = waits ? 0 : e.stall_us;
    return e;
}

/*
 * Paths that sleep count as up until they are probed: where the peer is to blame, or may be and no
 * other pair to it has answered, they say nothing of how the job goes on.
 */
static enum probe_fate fate_of(const struct r2_inst *inst, const struct r2_case *k,
                               const struct r2_finding *f, int stranded)
{
    if (f->v.blame == PROBE_BLAME_PEER) {
        return f->code == PROBE_CODE_P01 ? PROBE_FATE_ENDS : PROBE_FATE_WAITS;
    }
    if (stranded) {
        return inst->cfg.failover ? PROBE_FATE_WAITS : PROBE_FATE_ENDS;
    }
    return f->v.blame == PROBE_BLAME_UNKNOWN && f->v.suspects >> PROBE_BLAME_PEER & 1 &&
                   k->facts.others != PROBE_OK
               ? PROBE_FATE_NA
               : PROBE_FATE_CONTINUES;
}

/* The other end of the pair, seen from the part that is named. */
static void name_peer(struct r2_inst *inst, const struct r2_case *k, const struct r2_finding *f,
                      struct probe_line *l)
{
    if (r2_blame_is_remote(f->v.blame)) {
        l->peer_host = inst->self.host;
        l->peer_nic = inst->nics.nic[k->nic].name;
    } else if (k->peer && f->v.blame != PROBE_BLAME_PEER) {
        l->peer_host = k->peer->host;
        l->peer_nic = r2_evidence_peer_nic(inst, k);
    }
}

/* What is known of this host's NICs alone, where one of them is named. */
static void name_ours(struct r2_inst *inst, const struct r2_case *k, struct r2_finding *f,
                      const struct effect *e, struct probe_line *l)
{
    const struct ib_nic *nic = &inst->nics.nic[k->nic];
    const char *pci = nic->pci_path ? strrchr(nic->pci_path, '/') : NULL;
    int blamed = f->v.blame == PROBE_BLAME_LOCAL_NIC || f->v.blame == PROBE_BLAME_LOCAL_LINK;

    l->pci = pci ? pci + 1 : NULL;
    l->capacity_of = (unsigned)(inst->nics.count - inst->nics.last_count);
    for (int i = 0; i < inst->nics.count; i++) {
        uint32_t bit = 1u << i;

        if (ib_nic_state_get(&inst->nics.nic[i]) != IB_NIC_UP || (blamed && i == k->nic)) {
            continue;
        }
        l->capacity += !inst->nics.nic[i].last && !(inst->drain.nics & bit) &&
                       ((e->over & bit) || !(e->lost & bit));
        if (e->to & bit) {
            add(f->to, sizeof(f->to), "%s", inst->nics.nic[i].name);
        }
    }
}

void r2_finding_write_lines(struct r2_inst *inst, const struct r2_case *k, struct r2_finding *f)
{
    struct probe_line l = {.code = f->code,
                           .host = f->report.host,
                           .nic = f->report.nic,
                           .how = f->how,
                           .to = f->to,
                           .job = inst->self.job,
                           .suspects = f->v.suspects};
    struct probe_seen seen;
    struct effect e = {0};

    what_was_measured(inst, k, f);
    l.elsewhere = strcmp(f->report.host, inst->self.host) != 0;
    l.since_ms = f->report.since_ms;
    l.revises = f->revises.reported ? PROBE_CODE_F03 : PROBE_CODE_NONE;
    l.revises_ms = f->revises.since_ms;
    if (!k->process) {
        e = effect_of(inst, k, f);
        seen = r2_evidence_seen(k, f->code, (enum probe_blame)f->v.blame);
        l.seen_by = seen.by;
        l.seen_of = seen.of;
        name_peer(inst, k, f, &l);
        if (f->v.blame != PROBE_BLAME_PEER) {
            l.rail1 = r2_blame_is_remote(f->v.blame) && inst->cfg.backup_scope == R2_BACKUP_ANY
                          ? 0
                          : (unsigned)inst->nics.nic[k->nic].rail + 1;
            l.moved = e.moved;
            l.stall_us = e.stall_us;
        }
        if (f->v.blame != PROBE_BLAME_PEER && !r2_blame_is_remote(f->v.blame)) {
            name_ours(inst, k, f, &e, &l);
        }
    }
    l.fate = fate_of(inst, k, f, e.stranded);
    probe_line_full(f->line, &l);
    probe_line_short(f->brief, &l);
}

uint32_t r2_finding_announce(struct r2_inst *inst, const struct r2_case *k,
                             const struct r2_finding *f)
{
    const struct ib_counters *start, *last;
    const struct probe_code_info *info = probe_code_info(f->code);
    int ours = f->v.blame == PROBE_BLAME_LOCAL_NIC || f->v.blame == PROBE_BLAME_LOCAL_LINK;
    struct r2_cause r = {
        .code = info->name,
        .blame = info->blame,
        .severity = info->severity,
        .nic = k->process                                                            ? -1
               : ours || f->v.blame == PROBE_BLAME_PATH || f->code == PROBE_CODE_F03 ? k->nic
                                                                                     : -1,
        .peer_host = k->peer ? k->peer->host : NULL,
        .peer_nic = k->peer && !k->process ? r2_evidence_peer_nic(inst, k) : NULL,
        .since_ns = r2_case_since(k),
        .how = f->how,
        .confidence = f->v.confidence,
        .n_evidence = f->evidence.n,
        .action = info->action,
        .recommend = info->recommend,
        .revises = f->revises.reported ? probe_code_info(PROBE_CODE_F03)->name : NULL,
        .revises_id = f->revises.id,
        .brief = f->brief};

    if (r2_counters_get(inst, k->nic, k->since, &start, &last)) {
        for (int i = 0; i < IB_COUNTERS; i++) {
            r.counter_by[r.n_counters] = ib_counters_grown(start, last, i);
            r.counter[r.n_counters] = ib_counters_name(i);
            r.n_counters += r.counter_by[r.n_counters] != 0;
        }
    }
    for (int i = 0; i < f->evidence.n; i++) {
        r.evidence[i] = f->evidence.line[i];
    }
    r.id = f->code == PROBE_CODE_F03 ? ++inst->diagnosis.verdicts->undecided_id : 0;
    R2_NOTIFY(inst, on_cause, inst, &r);
    return r.id;
}
