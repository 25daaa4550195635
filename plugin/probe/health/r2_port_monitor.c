#include "r2_port_monitor.h"

#include <stdlib.h>
#include <string.h>

#include "core/r2_notify.h"
#include "core/r2_registry.h"
#include "core/r2_visit.h"
#include "r2_pair.h"
#include "r2_probation.h"
#include "r2_watch.h"

/* A check of one port, on its device's worker. All but the job's own fields: service thread, and
 * read by the worker while the job is out. */
struct r2_port_refresh {
    struct ib_job job; /* first */
    struct r2_inst *inst;
    int nic;
    int rc;
    uint8_t due;         /* enum ib_refresh: asked for by events since the latest check began */
    uint8_t requested;   /* ... before it began */
    uint8_t expected;    /* that the port is well is no news: it was, and nobody has asked */
    uint32_t generation; /* of the NIC when it began */
    uint64_t began;      /* ns */
};

#define LATE_NS (10 * 1000000ull) /* an answer after so long is news of the driver */

int r2_port_monitor_open(struct r2_inst *inst)
{
    inst->ports.refresh = calloc(IB_MAX_NICS, sizeof(*inst->ports.refresh));
    return inst->ports.refresh ? 0 : -1;
}

static void nic_lost(struct r2_inst *inst, int nic, enum ib_fault fault)
{
    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        r2_comm_visit(c);
        if (atomic_load_explicit(&c->state.setup, memory_order_relaxed) == R2_SETUP_DONE) {
            fo_on_nic_down(&c->fo, nic, fault);
        }
        r2_comm_unvisit(c);
    }
    r2_peers_nic_down(inst, nic); /* after the connections stopped posting: the word means that
                                     nothing more comes over the NIC */
}

/* Holds of its fences end with that (P18): their connections look now. */
static void nic_removed(struct r2_inst *inst, int nic)
{
    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        for (int p = 0; p < c->conn.npaths; p++) {
            if (c->conn.path[p].nic == nic) {
                c->fo.ops.kick(c->fo.ops.arg);
                break;
            }
        }
    }
}

static void qp_lost(struct r2_inst *inst, uint64_t context)
{
    struct ib_fault_info info = {.fault = IB_FAULT_QP};
    struct r2_comm *c = r2_comm_find(inst, (uint32_t)(context >> 28));
    int p = (int)(context & 15);

    if (c == NULL) {
        return;
    }
    r2_comm_visit(c);
    if (p < c->conn.npaths && ((context >> 4) & 0xffffff) == (c->conn.path[p].inc & 0xffffff)) {
        if (atomic_load_explicit(&c->state.setup, memory_order_relaxed) == R2_SETUP_DONE &&
            c->fo.path[p].state != FO_NONE) {
            fo_fault(&c->fo, p, &info);
        } else {
            c->qp_lost |= (uint8_t)(1u << p); /* when it comes up: it is said once */
        }
    }
    r2_comm_unvisit(c);
}

/* Queue pairs that were made with an address that is gone may reach nobody; which one it was, the
 * event does not say. */
static void probe_pairs(struct r2_inst *inst, int nic)
{
    for (struct r2_pair *pair = inst->index.pairs; pair; pair = pair->next) {
        if (pair->nic == nic && pair->peer) {
            r2_watch_probe(pair);
        }
    }
}

static void refresh_request(struct r2_inst *inst, int nic, unsigned what);

/* Something has happened to @nic: what a check that is out brings is waited for, news or not. */
static void refresh_want(struct r2_inst *inst, int nic)
{
    ib_workers_want(inst->jobs.workers, &inst->ports.refresh[nic].job);
}

void r2_port_monitor_fact(void *arg, const struct ib_fact *fact)
{
    struct r2_inst *inst = arg;

    refresh_want(inst, fact->nic);
    switch (fact->kind) {
    case IB_FACT_REFRESH:
        refresh_request(inst, fact->nic, (unsigned)fact->context);
        break;
    case IB_FACT_PORT_DOWN:
        nic_lost(inst, fact->nic, IB_FAULT_PORT);
        R2_NOTIFY(inst, on_nic, inst, fact->nic, R2_NIC_DOWN);
        break;
    case IB_FACT_PORT_UP:
        r2_probation_nic_up(inst, fact->nic);
        R2_NOTIFY(inst, on_nic, inst, fact->nic, R2_NIC_UP);
        break;
    case IB_FACT_ADDR_CHANGE:
        probe_pairs(inst, fact->nic);
        break;
    case IB_FACT_DEVICE_FATAL:
        nic_lost(inst, fact->nic, IB_FAULT_DEVICE);
        R2_NOTIFY(inst, on_nic, inst, fact->nic, R2_NIC_FATAL);
        inst->ports.removal_since = 0;
        break;
    case IB_FACT_DEVICE_FAILS:
        nic_lost(inst, fact->nic, IB_FAULT_CALL);
        R2_NOTIFY(inst, on_nic, inst, fact->nic, R2_NIC_FAILS);
        inst->ports.removal_since = 0;
        break;
    case IB_FACT_REMOVED:
        nic_removed(inst, fact->nic);
        R2_NOTIFY(inst, on_nic, inst, fact->nic, R2_NIC_REMOVED);
        break;
    case IB_FACT_QP_FATAL:
    case IB_FACT_CQ_ERR: /* a completion queue belongs to one path */
        qp_lost(inst, fact->context);
        break;
    default:
        break;
    }
}

/*
 * On the worker, which alone writes the address while the job is out. Quiet is what refresh_done()
 * would do nothing about: the port is ACTIVE, as it was, at the address that it had. It is decided
 * on what was so when the check began; what has happened since wants the answer (refresh_want), and
 * refresh_done() judges by what is so when it runs, however late.
 */
static void refresh_run(struct ib_job *job)
{
    struct r2_port_refresh *l = (struct r2_port_refresh *)job;
    struct ib_addr before, after;

    _Static_assert(sizeof(before) == 42, "compared whole: no padding");
    ib_nic_addr_get(&l->inst->nics, l->nic, &before);
    l->rc = ib_nic_refresh(&l->inst->nics, l->nic);
    ib_nic_addr_get(&l->inst->nics, l->nic, &after);
    job->quiet = l->expected && l->rc == 0 && memcmp(&before, &after, sizeof(before)) == 0 &&
                 r2_elapsed(r2_now(l->inst), l->began) < LATE_NS;
}

static void refresh_begin(struct r2_inst *inst, int nic);

static void refresh_done(struct ib_job *job)
{
    struct r2_port_refresh *l = (struct r2_port_refresh *)job;
    struct r2_inst *inst = l->inst;

    if (l->generation !=
        atomic_load_explicit(&inst->nics.nic[l->nic].generation, memory_order_relaxed)) {
        l->due |= l->requested; /* given up meanwhile: what was read is of before that */
        l->requested = 0;
    } else {
        ib_async_refreshed(&inst->nics, l->nic, l->rc, l->requested, r2_port_monitor_fact, inst);
    }
    if (l->due) {
        refresh_begin(inst, l->nic);
    }
}

/* Its job is not out. */
static void refresh_begin(struct r2_inst *inst, int nic)
{
    struct r2_port_refresh *l = &inst->ports.refresh[nic];
    enum ib_nic_state s = ib_nic_state_get(&inst->nics.nic[nic]);

    l->requested = l->due;
    l->due = 0;
    if (s == IB_NIC_FATAL || s == IB_NIC_GONE) {
        return; /* not touched any more */
    }
    l->inst = inst;
    l->nic = nic;
    l->expected = !l->requested && s == IB_NIC_UP && inst->nics.nic[nic].failing == 0;
    l->began = r2_now(inst);
    l->generation = atomic_load_explicit(&inst->nics.nic[nic].generation, memory_order_relaxed);
    l->job.run = refresh_run;
    l->job.done = refresh_done;
    l->job.urgent = 1; /* short, and what is behind it may be in vain */
    ib_workers_submit(inst->jobs.workers, inst->nics.nic[nic].device_index, &l->job);
}

/* An event asks. What is under way may have been read before it; it is wanted by then. */
static void refresh_request(struct r2_inst *inst, int nic, unsigned what)
{
    struct r2_port_refresh *l = &inst->ports.refresh[nic];

    l->due |= (uint8_t)what;
    if (!l->job.busy) {
        refresh_begin(inst, nic);
    }
}

#define EARLY                                                                                      \
    8 /* a thread at rest that is woken in the last of so many parts of the time between           \
         two checks checks now: one wake-up for both */

#define REMOVAL_NS                                                                                 \
    (10 * 1000000ull) /* between two checks whether a device is gone: a file in memory */
#define REMOVAL_LONG (10 * 1000000000ull) /* after that with the checks of the ports */

/*
 * What a removed device could still write holds receives back until it is known to be gone (P18),
 * and the kernel, which takes some time for it, says nothing when it is done.
 */
static uint64_t removals_step(struct r2_inst *inst, uint64_t now)
{
    if (inst->ports.removal_since && now < inst->ports.removal_at) {
        return inst->ports.removal_at;
    }
    if (ib_async_removals(&inst->nics, r2_port_monitor_fact, inst) == 0) {
        inst->ports.removal_since = now;
        inst->ports.removal_at = UINT64_MAX; /* until a fact says that a device failed */
        return UINT64_MAX;
    }
    inst->ports.removal_since = inst->ports.removal_since ? inst->ports.removal_since : now;
    inst->ports.removal_at = now + (r2_elapsed(now, inst->ports.removal_since) < REMOVAL_LONG
                                        ? REMOVAL_NS
                                        : (uint64_t)inst->cfg.t_port_poll_ms * 1000000);
    return inst->ports.removal_at;
}

bool r2_port_monitor_is_due(const struct r2_inst *inst, uint64_t now)
{
    uint64_t early = inst->watch.rest ? R2_MS(inst->cfg.t_port_poll_ms) / EARLY : 0;

    return now + early >= inst->ports.poll_at;
}

uint64_t r2_port_monitor_step(struct r2_inst *inst, uint64_t now, bool look)
{
    uint64_t next;

    if (r2_comm_first(inst) == NULL) {
        if (inst->ports.polls) { /* until there is something to look for again, nobody looks: who
                              comes next reads anew */
            for (int i = 0; i < inst->nics.count; i++) {
                ib_nic_addr_request(&inst->nics.nic[i]);
                refresh_want(inst, i); /* no later turn would take it back by the way */
            }
            inst->ports.polls = 0;
        }
        return UINT64_MAX; /* nothing to protect: no wake-ups */
    }
    inst->ports.polls = 1;
    next = removals_step(inst, now);
    if (!look && now < inst->ports.poll_at) {
        return r2_earlier(next, inst->ports.poll_at);
    }
    inst->ports.poll_at = now + (uint64_t)inst->cfg.t_port_poll_ms * 1000000;
    for (int i = 0; i < inst->nics.count; i++) {
        if (!inst->ports.refresh[i].job.busy) {
            refresh_begin(inst, i);
        }
    }
    return r2_earlier(next, inst->ports.poll_at);
}
