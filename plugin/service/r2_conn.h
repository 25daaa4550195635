/* A connection as a whole: from before its set-up to after its close. */
#ifndef R2_CONN_H
#define R2_CONN_H

#include "core/r2_inst.h"

/* Any thread. A new one, in the tables; nothing of it is set up. NULL with errno. */
struct r2_comm *r2_comm_alloc(struct r2_inst *inst, int is_send, int dev);
/* Service thread; all jobs are back, and r2_comm_leaves() has returned 1. */
void r2_comm_free(struct r2_comm *c);

/* r2_comm.c. The connection has ended: the reason is made the last WARN again, for the text that
 * frameworks show. NCCL's threads. */
enum r2_status r2_comm_report_error(struct r2_comm *c);

#endif
