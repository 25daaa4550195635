/* The file of traffic from what the rows of NICs have (r2_report_int.h). */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/r2_log.h"
#include "r2_report_int.h"
#include "r2_traffic.h"

_Static_assert(R2_TRAFFIC_NICS >= IB_MAX_NICS, "room");

void r2_report_traffic_look(const struct r2_report *r, const struct r2_stat_nic row[IB_MAX_NICS])
{
    static const uint8_t states[R2_STAT_NIC_STATES] = {[R2_STAT_NIC_UP] = R2_TRAFFIC_UP,
                                                       [R2_STAT_NIC_DOWN] = R2_TRAFFIC_DOWN,
                                                       [R2_STAT_NIC_FATAL] = R2_TRAFFIC_FATAL,
                                                       [R2_STAT_NIC_GONE] = R2_TRAFFIC_GONE};
    struct r2_traffic *t = r->inst->telemetry.traffic;
    struct r2_traffic_cell cell[R2_TRAFFIC_NICS];
    uint64_t now = r2_now(r->inst);

    for (int i = 0; t && i < r->inst->nics.count; i++) {
        const struct r2_stat_nic *n = &row[i];

        cell[i].sent = n->sent;
        cell[i].received = n->received;
        cell[i].state = n->state != R2_STAT_NIC_UP ? states[n->state]
                        : n->drained               ? R2_TRAFFIC_DRAINED
                        : n->moved && n->over == 0 ? R2_TRAFFIC_AVOIDED
                                                   : R2_TRAFFIC_UP;
    }
    if (t) {
        r2_traffic_look(t, cell, now, r2_report_real(r, now));
    }
}

void r2_report_traffic_open(struct r2_report *r)
{
    const struct r2_event_source *s = &r->src;
    struct r2_traffic_head head = {
        .pid = s->pid, .start = r->start, .nics = (uint32_t)r->inst->nics.count};
    char why[700];

    snprintf(head.host, sizeof(head.host), "%s", s->host);
    snprintf(head.command, sizeof(head.command), "%s", s->command);
    snprintf(head.scheduler, sizeof(head.scheduler), "%s", s->scheduler);
    snprintf(head.job, sizeof(head.job), "%s", s->job);
    snprintf(head.step, sizeof(head.step), "%s", s->step);
    for (int i = 0; i < r->inst->nics.count; i++) {
        snprintf(head.nic[i], sizeof(head.nic[i]), "%.31s", r->inst->nics.nic[i].name);
    }
    r2_traffic_sweep(r->inst->share.run_dir, geteuid(), time(NULL));
    r->inst->telemetry.traffic = r2_traffic_create(r2_stat_path(r->stat), &head, why, sizeof(why));
    if (r->inst->telemetry.traffic == NULL) {
        R2_INFO("no traffic for r2_report: %s", why);
    }
}

void r2_report_traffic_close(struct r2_report *r)
{
    struct r2_stat_nic row[IB_MAX_NICS];

    if (r->inst->telemetry.traffic == NULL) {
        return;
    }
    r2_report_rows_look(r); /* what has moved since the last one */
    r2_report_nics_fill(r, row);
    r2_report_traffic_look(r, row);
    r2_traffic_close(r->inst->telemetry.traffic);
    r->inst->telemetry.traffic = NULL;
}
