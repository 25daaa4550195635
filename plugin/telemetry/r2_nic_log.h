/*
 * What this process finds of its NICs, for the history over jobs (r2_nic_file.h). Service thread,
 * and who begins the instance or takes it down; nothing waits but for the local file system.
 */
#ifndef R2_NIC_LOG_H
#define R2_NIC_LOG_H

#include "core/r2_notify.h"

struct r2_nic_log;

/* NULL: the process keeps no statistics, or there is no run directory. Says at INFO which NICs are
 * advised for drain. Free with free(). */
struct r2_nic_log *r2_nic_log_open(const struct r2_inst *inst);
/* Which component broke: what is a NIC of ours is entered by the next flush. Connections settle
 * now: this touches no file. */
void r2_nic_log_cause(struct r2_inst *inst, const struct r2_cause *v);
/* With the rows of the statistics: enters what has been found. Where the file is busy, the next
 * one does. */
void r2_nic_log_flush(struct r2_inst *inst);

#endif
