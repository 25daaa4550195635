/*
 * NCCL's profiler tables, versions 1 to 6: no events are asked for; what NCCL says of a
 * communicator (since version 4) goes to the log. Threads: init and the end, whoever makes or
 * destroys the communicator. Nothing blocks.
 */
#include "net_abi_profiler.h"

#include "base/r2_log.h"
#include "net_offer.h"
#include "net_shims.h"

#define OFFER(version, table) NET_OFFER(ncclProfiler_##version, "NCCL_PROFILER_PLUGIN", table)

static enum nccl_result v1_init(void **ctx, int *events)
{
    *ctx = NULL;
    *events = 0;
    return NCCL_SUCCESS;
}

static enum nccl_result v5_init(void **ctx, uint64_t comm_id, int *events, const char *name,
                                int nodes, int ranks, int rank, nccl_logger_fn log)
{
    R2_INFO("communicator %llx%s%s: rank %d of %d, on %d hosts", (unsigned long long)comm_id,
            name ? " " : "", name ? name : "", rank, ranks, nodes);
    return v1_init(ctx, events);
}

static enum nccl_result v4_init(void **ctx, int *events, const char *name, uint64_t comm_id,
                                int nodes, int ranks, int rank, nccl_logger_fn log)
{
    return v5_init(ctx, comm_id, events, name, nodes, ranks, rank, log);
}

/* NCCL starts no event that nobody asked for. */
static enum nccl_result start(void *ctx, void **event, void *description)
{
    *event = NULL;
    return NCCL_SUCCESS;
}

static enum nccl_result stop(void *event)
{
    return NCCL_SUCCESS;
}

static enum nccl_result state_is(void *event, int state, void *args)
{
    return NCCL_SUCCESS;
}

static enum nccl_result finalize(void *ctx)
{
    return NCCL_SUCCESS;
}

static const struct nccl_profiler_v1 profiler_v1 = {NET_SHIM_NAME, v1_init,  start,
                                                    stop,          state_is, finalize};
static const struct nccl_profiler_v4 profiler_v4 = {NET_SHIM_NAME, v4_init,  start,
                                                    stop,          state_is, finalize};
static const struct nccl_profiler_v5 profiler_v5 = {NET_SHIM_NAME, v5_init,  start,
                                                    stop,          state_is, finalize};
OFFER(v1, profiler_v1);
OFFER(v2, profiler_v1);
OFFER(v3, profiler_v1);
OFFER(v4, profiler_v4);
OFFER(v5, profiler_v5);
OFFER(v6, profiler_v5);
