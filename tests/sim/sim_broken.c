/*
 * What a schedule has broken so far, and which paths may go down for it. One that does although
 * nothing was ever done to its NIC at either end, nor to the way between the two, is a false
 * switch: it fails the run, whatever the class.
 */
#include "sim.h"

#include "plugin/core/r2_inst.h"
#include "core/r2_registry.h"

#include <stdio.h>
#include <string.h>

static uint64_t fired_count(struct sim *s, int host, int nic, enum fab_fault_kind kind)
{
    return fab_inproc_nic(s->f, host, nic)->cnt.faults[kind];
}

/* Whether @kind may take a path down. What RC repairs may where it is strong against the
 * transport's patience; a packet that comes twice never. */
static int breaks(const struct sim *s, enum fab_fault_kind kind)
{
    switch (kind) {
    case FAB_FAULT_LOSS:
    case FAB_FAULT_CORRUPT:
    case FAB_FAULT_DELAY:
    case FAB_FAULT_RATE:
        return !s->p.quiet;
    case FAB_FAULT_DUP:
    case FAB_FAULT_UP:
    case FAB_FAULT_UNHANG:
    case FAB_FAULT_HEAL:
    case FAB_FAULT_RESTORE:
    case FAB_FAULT_RETRY7_FOREVER:
    case FAB_FAULT_RECV_KEPT:
    case FAB_FAULT_PROVIDER:
    case FAB_FAULT_MR_HANG:
        return 0;
    default:
        return 1;
    }
}

void sim_broken_nic(struct sim *s, int host, int nic)
{
    s->broken.nic[host] |= 1u << nic;
}

static void way_note(struct sim *s, int host, int nic, uint64_t ports)
{
    for (int h = 0; h < SIM_MAX_PROCS; h++) {
        for (int n = 0; n < s->p.nics; n++) {
            if (!fab_ports_has(ports, h, n)) {
                continue;
            }
            s->broken.way[host][nic][h] |= 1u << n;
            s->broken.way[h][n][host] |= 1u << nic;
        }
    }
}

static int names(const struct fab_fault *f, int host, int nic)
{
    return (f->host < 0 || f->host == host) && (f->nic < 0 || f->nic == nic);
}

/* A spine of a rail: paths between any two of its NICs may go down for it, and those to rails
 * behind it, which go over the lower one (fab_spine.h). */
static void spine_note(struct sim *s, int hosts, int rail)
{
    for (int a = 0; a < hosts; a++) {
        for (int b = 0; b < hosts; b++) {
            for (int n = rail; n < s->p.nics; n++) {
                s->broken.way[a][rail][b] |= 1u << n;
                s->broken.way[a][n][b] |= 1u << rail;
            }
        }
    }
}

void sim_fabric_fault(struct sim *s, const char *text)
{
    uint64_t before[SIM_MAX_PROCS][IB_MAX_NICS];
    int hosts = s->p.share_host ? 2 : s->p.procs;
    struct fab_fault f;
    char err[160];

    if (fab_fault_parse(text, &f, err, sizeof(err)) != 0) {
        sim_fail(s, "fault '%s': %s", text, err);
        return;
    }
    for (int h = 0; h < hosts; h++) {
        for (int n = 0; n < s->p.nics; n++) {
            before[h][n] = fired_count(s, h, n, f.kind);
        }
    }
    if (fab_inproc_fault(s->f, text, err, sizeof(err)) != 0) {
        sim_fail(s, "fault '%s': %s", text, err);
        return;
    }
    if (f.at == FAB_AT_SPINE) {
        spine_note(s, hosts, f.nic);
        return;
    }
    for (int h = 0; h < hosts; h++) {
        for (int n = 0; n < s->p.nics; n++) {
            if (!names(&f, h, n)) {
                continue;
            }
            if (fired_count(s, h, n, f.kind) == before[h][n]) {
                sim_fail(s, "fault '%s' did not fire at h%d:n%d", text, h, n);
            }
            if (f.kind == FAB_FAULT_CUT || f.kind == FAB_FAULT_CUT_TX) {
                way_note(s, h, n, f.value);
            } else if (breaks(s, f.kind)) {
                sim_broken_nic(s, h, n);
            }
        }
    }
}

/* ---- a path that goes down ---- */

static const struct r2_comm *comm_of(const struct sim_proc *p, const char *label)
{
    size_t len;

    for (const struct r2_comm *c = r2_comm_first(p->inst); c; c = c->list.all_next) {
        len = strlen(c->label);
        if (strncmp(label, c->label, len) == 0 && strncmp(label + len, " path ", 6) == 0) {
            return c;
        }
    }
    return NULL;
}

/*
 * An end that leaves takes registrations and queue pairs away while the other may still be sending,
 * or telling what came: that is refused, or never answered, over whatever path it goes, and both
 * ends see it. There is nothing left to switch.
 */
static int has_left(const struct sim *s, const struct sim_proc *p, const struct r2_comm *c)
{
    for (int i = 0; i < s->p.conns; i++) {
        const struct sim_conn *k = &s->conn[i];
        if (((k->s.proc == p && k->s.comm_id == c->id) ||
             (k->r.proc == p && k->r.comm_id == c->id)) &&
            (k->s.state >= SIM_END_DEREGISTERED || k->r.state >= SIM_END_DEREGISTERED)) {
            return 1;
        }
    }
    return 0;
}

/*
 * Whether the path between these two NICs goes down with a cause: a fault, or the order to drain
 * one of them. Of the order the other end hears, or it finds out where the channel is out: the
 * queue pair there sends and answers nothing any more.
 */
static int has_cause(const struct sim *s, unsigned host, unsigned nic, unsigned far_host,
                     unsigned far, const char *msg)
{
    if (s->broken.drained[host] >> nic & 1 || s->broken.drained[far_host] >> far & 1) {
        return 1;
    }
    return !strstr(msg, ib_fault_name(IB_FAULT_ADMIN)) &&
           (s->broken.nic[host] >> nic & 1 || s->broken.nic[far_host] >> far & 1 ||
            s->broken.way[host][nic][far_host] >> far & 1);
}

/* Line: "NET/R2 : LABEL path P life L UP -> DOWN: WHY". */
void sim_switch_judge(struct sim_proc *p, const char *msg)
{
    struct sim *s = p->sim;
    const char *label = strstr(msg, " : "), *path = strstr(msg, " path ");
    const struct r2_comm *c = label ? comm_of(p, label + 3) : NULL;
    unsigned at, host, near, far;

    if (!c || !path || sscanf(path, " path %u", &at) != 1 || at >= (unsigned)c->conn.npaths ||
        sscanf(c->far.host, "h%u", &host) != 1 || host >= SIM_MAX_PROCS ||
        sscanf(c->far.nic[at], "fab%u", &far) != 1 ||
        sscanf(c->conn.nics->nic[c->conn.path[at].nic].name, "fab%u", &near) != 1) {
        sim_fail(s, "process %d: whose path is this: %s", p->index, msg);
        return;
    }
    if (has_cause(s, (unsigned)p->host, near, host, far, msg) || has_left(s, p, c)) {
        return;
    }
    s->st.false_switches++;
    sim_fail(
        s, "process %d: false switch: nothing was done to h%d:n%u, h%u:n%u or what is between: %s",
        p->index, p->host, near, host, far, msg);
}
