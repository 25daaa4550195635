/*
 * Contexts: what one communicator of NCCL's has passed to init, where the table has an init and a
 * finalize for each of them (version 11 and later). All of them share the instance of the process,
 * which no finalize takes away: what has been closed still owes its peers last messages, and users
 * of a table of another version have no finalize.
 */
#ifndef R2_CTX_H
#define R2_CTX_H

#include <stdint.h>

#include "r2_init.h"

struct r2_ctx;

/*
 * One more communicator, @comm_id; r2_init() with the first. @class: the traffic class that it
 * requests, or R2_NET_NO_CLASS; r2_net_connect_class() checks whether a port has it. *@out is never
 * NULL on success and NULL on failure, which is r2_init()'s or R2_ERR_SYSTEM. Any thread. May
 * block in drivers. The log lines are queued, not flushed.
 */
enum r2_status r2_ctx_open(r2_log_sink_fn sink, uint64_t comm_id, int class, struct r2_ctx **out);

/*
 * The communicator is gone. NULL is nothing to do; R2_ERR_ARG for a context that is not open. Its
 * connections, should there be any, stay. Any thread. Does not block.
 */
enum r2_status r2_ctx_close(struct r2_ctx *ctx);

/* The traffic class that the communicator requests. Also of a context that was closed lately. Any
 * thread. Does not block. */
int r2_ctx_class(const struct r2_ctx *ctx);

#endif
