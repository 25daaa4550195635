/*
 * What happens in this process, made known: the statistics file and the events
 * (docs/diagnosis.md, docs/events.md). Service thread, unless said otherwise; nothing waits but
 * for a local file system. Without a run directory, or with both switched off, all of it does
 * nothing, but where NCCL_R2_ON_EVENT names a program.
 */
#ifndef R2_REPORT_H
#define R2_REPORT_H

#include <stdint.h>

#include "base/r2_config.h"
#include "core/r2_notify.h"

/* Begins, with the event "start". Why something cannot be written is logged once. At init. */
void r2_report_open(struct r2_inst *inst, const struct r2_job *job);
/* The event "stop" with what happened, and the statistics file goes. The service thread has
 * stopped. A second call does nothing. */
void r2_report_stop(struct r2_inst *inst);
void r2_report_free(struct r2_inst *inst);

/* End of a turn: reports what is complete, writes what has changed, or, with @tick, all of it.
 * Returns when it wants another turn (ns). */
uint64_t r2_report_step(struct r2_inst *inst, uint64_t now, int tick);

/* What has become of @c: its incarnations, what of them is settled, its end. Before and after a
 * step of it, gate held. */
void r2_report_comm(struct r2_comm *c);
/* The present incarnation of (@p) is put away with its counters. */
void r2_report_incarnation_over(struct r2_comm *c, int p);
/* @c is going. */
void r2_report_comm_gone(struct r2_comm *c);

/* Our NIC is drained, or not any more. */
void r2_report_drain(struct r2_inst *inst, int nic, int on, const char *why);

/* Changes of our NICs, health reports about pairs of this process (the rest of the job has its own
 * history), causes, stalls without a fault. */
extern const struct r2_subscriber r2_report_subscriber;

#endif
