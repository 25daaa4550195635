#include "r2_loopback.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/r2_log.h"
#include "core/r2_inst.h"
#include "core/r2_registry.h"

#define GREET_NS 1000000000ull

static void loopback_move(struct r2_loopback *l, enum r2_loopback_state to)
{
    static const char *const names[R2_LOOPBACK_STATES] = {"none", "building", "ready", "broken"};
    static const unsigned char legal[R2_LOOPBACK_STATES][R2_LOOPBACK_STATES] = {
        [R2_LOOPBACK_NONE] = {[R2_LOOPBACK_BUILD] = 1},
        [R2_LOOPBACK_BUILD] = {[R2_LOOPBACK_READY] = 1, [R2_LOOPBACK_BROKEN] = 1},
        [R2_LOOPBACK_READY] = {[R2_LOOPBACK_BUILD] = 1},
        [R2_LOOPBACK_BROKEN] = {[R2_LOOPBACK_BUILD] = 1},
    };

    if (!legal[l->state][to]) {
        R2_WARN("loopback of NIC %s cannot go from %s to %s", l->inst->nics.nic[l->nic].name,
                names[l->state], names[to]);
        return;
    }
    R2_TRACE("loopback of NIC %s %s -> %s", l->inst->nics.nic[l->nic].name, names[l->state],
             names[to]);
    l->state = to;
}

static int dead_nic(const struct r2_loopback *l)
{
    enum ib_nic_state s = ib_nic_state_get(&l->inst->nics.nic[l->nic]);

    return s == IB_NIC_FATAL || s == IB_NIC_GONE;
}

/* One that has never answered may be none: that it does not now is evidence of nothing. */
static void end(struct r2_loopback *l, enum probe_outcome outcome)
{
    l->asking = 0;
    l->works |= outcome == PROBE_OK;
    l->outcome = (uint8_t)(l->works ? outcome : PROBE_NA);
    l->questions++;
}

/* --- job --- */

static void build_run(struct ib_job *job)
{
    struct r2_loopback *l = (struct r2_loopback *)job;
    struct ib_nics *nics = &l->inst->nics;
    struct ib_path_addr self;

    probe_qp_destroy(&l->qp, nics);
    l->rc = probe_qp_create(&l->qp, nics, l->nic, l->psn);
    if (l->rc == 0) {
        probe_qp_addr_get(&l->qp, nics, l->nic, &self);
        l->rc = probe_qp_connect(&l->qp, nics, l->nic, &self, NULL);
    }
}

static void post_probe(struct r2_loopback *l)
{
    if (probe_qp_post(&l->qp, 0) != 0) {
        end(l, PROBE_ERROR);
    }
}

static void build_done(struct ib_job *job)
{
    struct r2_loopback *l = (struct r2_loopback *)job;

    loopback_move(l, l->rc == 0 ? R2_LOOPBACK_READY : R2_LOOPBACK_BROKEN);
    if (l->rc != 0) {
        R2_INFO("NIC %s has no loop: %s", l->inst->nics.nic[l->nic].name, strerror(l->rc));
    }
    if (!l->asking && !l->works && l->state == R2_LOOPBACK_READY) {
        l->asking = l->fresh = 1; /* the time of the first probe was over before it could be put:
                                     the worker had much to do */
        l->deadline = l->inst->watch.clock + GREET_NS;
        l->inst->watch.probing = 1;
    }
    if (l->asking && dead_nic(l)) {
        end(l, PROBE_NA);
    } else if (l->asking && l->state == R2_LOOPBACK_READY) {
        post_probe(l);
    } else if (l->asking) {
        end(l, PROBE_ERROR);
    }
    r2_inst_wake(l->inst);
}

static void build(struct r2_loopback *l)
{
    loopback_move(l, R2_LOOPBACK_BUILD);
    l->fresh = l->asking;
    l->inst->env.random(l->inst->env.arg, &l->psn, sizeof(l->psn));
    l->job.run = build_run;
    l->job.done = build_done;
    ib_workers_submit(l->inst->jobs.workers, l->inst->nics.nic[l->nic].device_index, &l->job);
}

void r2_loopback_want(struct r2_inst *inst, int nic)
{
    struct r2_loopback *l = &inst->diagnosis.loop[nic];

    if (l->inst == NULL) { /* the worker reads them while a job is out */
        l->inst = inst;
        l->nic = nic;
    }
    if (l->state == R2_LOOPBACK_NONE && !dead_nic(l)) {
        l->asking = 1;
        l->deadline = inst->watch.clock + GREET_NS;
        build(l);
    }
}

/* --- asking --- */

void r2_loopback_probe(struct r2_inst *inst, int nic, uint64_t clock, uint64_t limit)
{
    struct r2_loopback *l = &inst->diagnosis.loop[nic];

    if (l->asking) {
        return;
    }
    l->asking = 1;
    l->fresh = 0;
    l->deadline = clock + limit;
    if (l->inst == NULL || dead_nic(l) || !l->works) {
        end(l, PROBE_NA);
    } else if (l->state == R2_LOOPBACK_READY && probe_qp_poll(&l->qp) >= 0 &&
               probe_qp_out(&l->qp) == 0) {
        post_probe(l);
    } else if (l->state != R2_LOOPBACK_BUILD) {
        build(l); /* none yet; or it broke, or holds an old probe: that says nothing about now */
    } else {
        l->fresh = 1;
    }
}

static void watch(struct r2_loopback *l, uint64_t clock)
{
    int r;

    if (dead_nic(l)) {
        end(l, PROBE_NA);
        return;
    }
    r = l->state == R2_LOOPBACK_READY ? probe_qp_poll(&l->qp) : 0;
    if (r > 0) {
        end(l, PROBE_OK);
    } else if (r < 0 && !l->fresh) {
        build(l); /* it may have broken alone */
    } else if (r < 0) {
        end(l, PROBE_ERROR);
    } else if (clock >= l->deadline) {
        end(l, PROBE_TIMEOUT); /* a driver that does not build one either has had the same time */
    }
}

int r2_loopbacks_watch(struct r2_inst *inst, uint64_t clock)
{
    int asking = 0;

    for (int i = 0; i < inst->nics.count; i++) {
        if (inst->diagnosis.loop[i].asking) {
            watch(&inst->diagnosis.loop[i], clock);
        }
        asking |= inst->diagnosis.loop[i].asking;
    }
    return asking;
}

int r2_loopbacks_open(struct r2_inst *inst)
{
    inst->diagnosis.loop = calloc(IB_MAX_NICS, sizeof(*inst->diagnosis.loop));
    return inst->diagnosis.loop ? 0 : -1;
}

void r2_loopbacks_free(struct r2_inst *inst, uint64_t still_running)
{
    for (int i = 0; i < inst->nics.count; i++) {
        if (!(still_running >> inst->nics.nic[i].device_index & 1)) {
            probe_qp_destroy(&inst->diagnosis.loop[i].qp, &inst->nics);
        }
    }
}
