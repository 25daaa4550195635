#include "r2_host_share.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/r2_log.h"
#include "base/r2_time.h"
#include "core/r2_registry.h"
#include "probe/diagnosis/r2_locate.h"
#include "probe/diagnosis/r2_gossip.h"
#include "probe/health/r2_pair.h"
#include "probe/health/r2_probation.h"
#include "probe/health/r2_way_notified.h"
#include "r2_failback.h"

#define WAYS_NS   R2_MS(100)
#define ALL_LOOKS 4 /* at the ports, for one at the slots that nobody had */
#define WAYS_MOST 8 /* ways in that time: of a slot's events the latest 16 can be read */
#define ECHO_NS                                                                                    \
    1000000000ull /* what others announced of a NIC so recently is not announced again */

_Static_assert(R2_HOST_REGISTRY_NICS >= IB_MAX_NICS, "a row for each NIC");
_Static_assert(sizeof(struct probe_report) <= R2_HOST_REGISTRY_DATA * sizeof(uint64_t),
               "a word of news in an event");

static void hear_lately(struct r2_inst *inst);

/* --- who we are --- */

static void who_am_i(const struct r2_inst *inst, struct r2_host_registry_who *me)
{
    FILE *f = fopen("/proc/self/comm", "re");
    size_t n = 0;

    memset(me, 0, sizeof(*me));
    if (f) {
        n = fread(me->command, 1, sizeof(me->command) - 1, f);
        fclose(f);
    }
    me->command[n && me->command[n - 1] == '\n' ? n - 1 : n] = '\0';
    snprintf(me->host, sizeof(me->host), "%s", inst->self.host);
    me->pid = getpid();
    me->since = r2_clock_ns(CLOCK_REALTIME);
}

void r2_host_share_open(struct r2_inst *inst, const char *dir)
{
    struct r2_host_registry_who me;
    char why[600];

    who_am_i(inst, &me);
    inst->share.registry = r2_host_registry_open(dir, &me, why, sizeof(why));
    if (inst->share.registry == NULL) {
        R2_WARN(
            "no host registry: %s. What other processes of this host find out about NICs is not known here",
            why);
        return;
    }
    R2_INFO("host registry in %s%s", dir,
            r2_host_registry_fd(inst->share.registry) < 0
                ? ", without inotify: polled with each check of the ports"
                : "");
    inst->share.rows_changed = 1;
    hear_lately(inst);
}

void r2_host_share_close(struct r2_inst *inst)
{
    r2_host_registry_close(inst->share.registry);
    inst->share.registry = NULL;
}

/* --- saying --- */

static void post(struct r2_inst *inst, enum r2_host_registry_kind kind, int nic,
                 const struct ib_addr *remote, uint64_t when)
{
    const struct ib_nic *n = &inst->nics.nic[nic];
    struct r2_host_registry_event e = {
        .kind = kind, .guid = n->guid, .port = n->port, .when = when};

    if (remote) {
        e.lid = remote->lid;
        ib_nic_gid_show(n, remote->gid, e.gid);
    }
    r2_host_registry_post(inst->share.registry, &e);
}

static void on_nic(struct r2_inst *inst, int nic, enum r2_nic_change change)
{
    int up = change == R2_NIC_UP;

    if (change == R2_NIC_REMOVED) {
        return; /* what counts for others was said when it failed */
    }
    inst->share.rows_changed = 1;
    if (inst->share.registry && (inst->share.heard_at[nic] == 0 ||
                                 r2_elapsed(r2_now(inst), inst->share.heard_at[nic]) > ECHO_NS)) {
        post(inst, up ? R2_HOST_REGISTRY_NIC_UP : R2_HOST_REGISTRY_NIC_DOWN, nic, NULL,
             r2_now(inst));
    }
}

static void on_pair(struct r2_pair *pair, enum r2_pair_verdict verdict, uint64_t ns)
{
    struct r2_inst *inst = pair->inst;

    if (inst->share.registry && pair->announce.peer_inc != 0 &&
        (verdict == R2_PAIR_GOOD || verdict == R2_PAIR_SILENT)) {
        post(inst,
             verdict == R2_PAIR_GOOD ? R2_HOST_REGISTRY_PAIR_GOOD : R2_HOST_REGISTRY_PAIR_SILENT,
             pair->nic, &pair->far.addr.port, r2_now(inst) - ns);
    }
}

/* Processes of this host hear it, too: they may be connected to others. */
static void on_report(struct r2_inst *inst, const struct probe_report *w, enum r2_report_from from,
                      const char *who)
{
    struct r2_host_registry_event e = {.kind = R2_HOST_REGISTRY_REPORT, .when = r2_now(inst)};

    if (inst->share.registry && from != R2_REPORT_HOST) {
        memcpy(e.data, w, sizeof(*w));
        r2_host_registry_post(inst->share.registry, &e);
    }
}

static void on_way(struct r2_pair *pair, unsigned way, unsigned good, uint64_t ns)
{
    struct r2_inst *inst = pair->inst;
    const struct ib_nic *n = &inst->nics.nic[pair->nic];
    struct r2_host_registry_event e = {.kind = R2_HOST_REGISTRY_WAY,
                                       .guid = n->guid,
                                       .port = n->port,
                                       .lid = pair->far.addr.port.lid,
                                       .when = r2_now(inst) - ns,
                                       .data = {r2_ways_label(pair, way)}};

    if (inst->share.registry == NULL) {
        return;
    }
    if (r2_elapsed(r2_now(inst), inst->share.ways_at) >= WAYS_NS) {
        inst->share.ways_at = r2_now(inst);
        inst->share.ways = 0;
    }
    if (inst->share.ways++ < WAYS_MOST) {
        memcpy(e.gid, pair->far.addr.port.gid, sizeof(e.gid));
        r2_host_registry_post(inst->share.registry, &e);
    }
}

/* Processes of this host that have no connection to who said it. */
static void on_way_notified(struct r2_pair *pair, unsigned way, uint64_t ns,
                            enum r2_report_from from, const char *who)
{
    if (from == R2_REPORT_PEER) {
        on_way(pair, way, 0, ns);
    }
}

const struct r2_subscriber r2_host_share_subscriber = {.on_nic = on_nic,
                                                       .on_pair = on_pair,
                                                       .on_way = on_way,
                                                       .on_way_notified = on_way_notified,
                                                       .on_report = on_report};

/* --- hearing --- */

static int nic_of(const struct r2_inst *inst, const struct r2_host_registry_event *e)
{
    for (int i = 0; i < inst->nics.count; i++) {
        if (inst->nics.nic[i].guid == e->guid && inst->nics.nic[i].port == e->port) {
            return i;
        }
    }
    return -1;
}

static int same_remote(const struct r2_pair *pair, const struct r2_host_registry_event *e)
{
    return pair->peer && pair->announce.peer_inc != 0 && pair->far.addr.port.lid == e->lid &&
           memcmp(pair->far.addr.port.gid, e->gid, sizeof(e->gid)) == 0;
}

static void hear_pairs(struct r2_inst *inst, int nic, const struct r2_host_registry_event *e,
                       uint64_t now, const char *who)
{
    for (struct r2_pair *pair = inst->index.pairs; pair; pair = pair->next) {
        if (pair->nic != nic || !same_remote(pair, e)) {
            continue;
        }
        if (e->kind == R2_HOST_REGISTRY_PAIR_GOOD) {
            r2_probation_on_good_report(pair);
        } else if (e->when <= now) {
            r2_pair_on_silent_report(pair, now - e->when, who);
        }
    }
}

static void hear_gossip(struct r2_inst *inst, const struct r2_host_registry_event *e,
                        const char *who)
{
    struct probe_report w;

    memcpy(&w, e->data, sizeof(w));
    if (probe_report_is_valid(&w)) {
        r2_gossip_heard(inst, &w, who);
    }
}

static void hear(struct r2_inst *inst, const struct r2_host_registry_event *e,
                 const struct r2_host_registry_who *from, uint64_t now)
{
    char who[80];
    int nic = nic_of(inst, e);

    snprintf(who, sizeof(who), "%s, pid %ld", from->command, (long)from->pid);
    if (e->kind == R2_HOST_REGISTRY_REPORT) {
        hear_gossip(inst, e, who);
        return;
    }
    if (nic < 0) {
        return; /* not a NIC of ours */
    }
    R2_TRACE("host registry: %s reports %s, NIC %s", who, r2_host_registry_kind_name(e->kind),
             inst->nics.nic[nic].name);
    switch (e->kind) {
    case R2_HOST_REGISTRY_NIC_DOWN:
    case R2_HOST_REGISTRY_NIC_UP:
        inst->share.heard_at[nic] = now;
        inst->ports.poll_at = 0; /* our own check decides */
        break;
    case R2_HOST_REGISTRY_WAY:
        r2_way_notified_heard(inst, nic, e->gid, (uint32_t)e->data[0], r2_elapsed(now, e->when),
                              who);
        break;
    default:
        hear_pairs(inst, nic, e, now, who);
        break;
    }
}

/*
 * What was said before this process came is past, except for ways: one that is silent is so for a
 * job that begins now, too, and its first messages would find that out.
 */
static void hear_lately(struct r2_inst *inst)
{
    struct r2_host_registry_event e[R2_HOST_REGISTRY_EVENTS];
    uint64_t now = r2_now(inst);

    for (int i = 0; i < R2_HOST_REGISTRY_SLOTS; i++) {
        int n = r2_host_registry_slot_events(inst->share.registry, i, e);

        for (int k = 0; k < n; k++) {
            int nic = nic_of(inst, &e[k]);

            if (e[k].kind == R2_HOST_REGISTRY_WAY && nic >= 0 &&
                r2_elapsed(now, e[k].when) < PROBE_WAY_AVOID_NS) {
                r2_way_notified_heard(inst, nic, e[k].gid, (uint32_t)e[k].data[0],
                                      r2_elapsed(now, e[k].when), "one before");
            }
        }
    }
}

void r2_host_share_rung(struct r2_inst *inst)
{
    if (inst->share.registry) {
        r2_host_registry_heard(inst->share.registry);
    }
    inst->share.rung = 1;
}

/* --- rows --- */

/* What is shown of @c, into the sums, or out of them. */
static void sum_add(struct r2_comm *c, int sign)
{
    struct r2_inst *inst = c->inst;
    uint32_t nics = c->shown.nics;

    for (uint32_t m = nics; m; m &= m - 1) {
        int i = __builtin_ctz(m);

        inst->share.sum[i].usable += (uint32_t)sign;
        inst->share.sum[i].last += (nics & (nics - 1)) == 0 ? (uint32_t)sign : 0;
    }
    for (uint32_t m = c->shown.out; m; m &= m - 1) {
        inst->share.sum[c->conn.path[__builtin_ctz(m)].nic].waits += (uint32_t)sign;
    }
}

static void show(struct r2_comm *c, uint32_t up, uint32_t out)
{
    sum_add(c, -1);
    c->shown.up = up;
    c->shown.out = out;
    c->shown.nics = 0;
    for (uint32_t m = ib_conn_carrying(&c->conn, up); m; m &= m - 1) {
        c->shown.nics |= 1u << c->conn.path[__builtin_ctz(m)].nic;
    }
    sum_add(c, 1);
    c->inst->share.rows_changed = 1;
}

static uint32_t at_most(uint32_t n, uint32_t most)
{
    return n < most ? n : most;
}

static void rows_write(struct r2_inst *inst)
{
    struct r2_host_registry_nic row[IB_MAX_NICS];

    memset(row, 0, sizeof(row));
    for (int i = 0; i < inst->nics.count; i++) {
        const struct ib_nic *nic = &inst->nics.nic[i];

        row[i].usable = (uint16_t)at_most(inst->share.sum[i].usable, UINT16_MAX);
        row[i].last = (uint16_t)at_most(inst->share.sum[i].last, UINT16_MAX);
        row[i].waits = (uint8_t)at_most(inst->share.sum[i].waits, UINT8_MAX);
        snprintf(row[i].name, sizeof(row[i].name), "%.*s", R2_HOST_REGISTRY_NIC - 1, nic->name);
        row[i].guid = nic->guid;
        row[i].port = nic->port;
        row[i].state = (uint8_t)ib_nic_state_get(nic);
        row[i].drained = (inst->drain.nics >> i) & 1;
        row[i].lost = inst->share.incarnations_lost[i];
        r2_host_registry_nic_set(inst->share.registry, i, &row[i]);
    }
}

void r2_host_share_comm(struct r2_comm *c)
{
    uint32_t up = c->conn.up, waits = r2_failback_waiting(c);

    if (up == c->shown.up && waits == c->shown.out) {
        return;
    }
    for (uint32_t m = c->shown.up & ~up;
         m && atomic_load_explicit(&c->state.close, memory_order_relaxed) == R2_CLOSE_OPEN;
         m &= m - 1) {
        c->inst->share.incarnations_lost[c->conn.path[__builtin_ctz(m)].nic]++;
        r2_locate_lost(c, __builtin_ctz(m));
    }
    show(c, up, waits);
}

void r2_host_share_comm_gone(struct r2_comm *c)
{
    show(c, 0, 0);
}

/* Slots that nobody had may have somebody who was killed before he rang; where there is no bell,
 * anybody. */
static int hears_all(const struct r2_inst *inst)
{
    return inst->share.looks % ALL_LOOKS == 0 || r2_host_registry_fd(inst->share.registry) < 0;
}

void r2_host_share_step(struct r2_inst *inst, uint64_t now, int tick)
{
    struct r2_host_registry *b = inst->share.registry;
    struct r2_host_registry_event e;
    struct r2_host_registry_who from;

    if (b == NULL) {
        return;
    }
    inst->share.looks += tick != 0;
    if (inst->share.rung || (tick && hears_all(inst))) {
        while (r2_host_registry_next(b, &e, &from)) {
            hear(inst, &e, &from, now);
        }
    } else if (tick) {
        while (r2_host_registry_next_known(b, &e, &from)) {
            hear(inst, &e, &from, now);
        }
    }
    if (inst->share.rows_changed) {
        inst->share.rows_changed = 0;
        rows_write(inst);
    }
}
