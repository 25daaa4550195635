#include "r2_counters.h"

#include <stdlib.h>

#include "core/r2_inst.h"

int r2_counters_open(struct r2_inst *inst)
{
    inst->diagnosis.counters = calloc(IB_MAX_NICS, sizeof(*inst->diagnosis.counters));
    return inst->diagnosis.counters ? 0 : -1;
}

static void read_run(struct ib_job *job)
{
    struct r2_counters *c = (struct r2_counters *)job;
    const struct ib_nic *nic = &c->inst->nics.nic[c->nic];

    ib_counters_read(nic->ctx->device->ibdev_path, nic->port, &c->read);
}

static void read_done(struct ib_job *job)
{
    struct r2_counters *c = (struct r2_counters *)job;

    if (!c->begun) {
        c->begun = 1;
        c->start = c->read;
    }
    c->last = c->read;
    c->last_at = c->requested_at;
}

void r2_counters_request(struct r2_inst *inst, int nic)
{
    struct r2_counters *c = &inst->diagnosis.counters[nic];
    enum ib_nic_state s = ib_nic_state_get(&inst->nics.nic[nic]);

    if (!c->there || c->job.busy || s == IB_NIC_FATAL || s == IB_NIC_GONE) {
        return; /* a dead one is not touched any more */
    }
    c->requested_at = r2_now(inst);
    c->job.run = read_run;
    c->job.done = read_done;
    ib_workers_submit(inst->jobs.workers, inst->nics.nic[nic].device_index, &c->job);
}

void r2_counters_want(struct r2_inst *inst, int nic)
{
    struct r2_counters *c = &inst->diagnosis.counters[nic];
    const struct ib_nic *n = &inst->nics.nic[nic];
    enum ib_nic_state s = ib_nic_state_get(n);

    if (c->tried || s == IB_NIC_FATAL || s == IB_NIC_GONE) {
        return;
    }
    c->tried = 1;
    c->inst = inst;
    c->nic = nic;
    c->there = (uint8_t)ib_counters_there(n->ctx->device->ibdev_path, n->port);
    r2_counters_request(inst, nic);
}

int r2_counters_get(const struct r2_inst *inst, int nic, uint64_t since,
                    const struct ib_counters **start, const struct ib_counters **last)
{
    const struct r2_counters *c = &inst->diagnosis.counters[nic];

    if (c->last_at == 0 || c->last_at < since) {
        return 0;
    }
    *start = &c->start;
    *last = &c->last;
    return 1;
}
