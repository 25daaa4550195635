/*
 * The instance of this process: how it is made and found. It lasts until the process ends, when a
 * handler of exit() sends last messages (P28).
 */
#ifndef R2_INIT_H
#define R2_INIT_H

#include "base/r2_log.h"
#include "core/r2_net.h"

/*
 * First call in a process: reads the options, opens libibverbs and the devices, starts the service
 * thread. Later calls find all that and do nothing; in a child of fork() the first one starts anew,
 * what the parent had is not touched.
 * @sink takes the log from now on (NULL: nobody does). R2_ERR_SYSTEM when there is nothing to work
 * with (no libibverbs, no device, NCCL_IB_DISABLE): NCCL goes on with its next network, and one
 * line says why. A bad option is no error here, for that reason: r2_net_listen() fails with it. Any
 * thread. May block in drivers. The log lines are queued, not flushed.
 */
enum r2_status r2_init(r2_log_sink_fn sink);

/* The instance of this process; NULL before init, and in a child of fork() before its own init. Any
 * thread. */
struct r2_inst *r2_init_instance(void);

#endif
