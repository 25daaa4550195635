/*
 * NCCL's profiler plugin ABI, versions 1 to 6, declared anew: names are ours, layouts are NCCL's
 * and checked below. LP64 only. What an event is described by differs from version to version;
 * nothing here asks for events, so it is not declared.
 */
#ifndef NET_ABI_PROFILER_H
#define NET_ABI_PROFILER_H

#include "net_abi.h"

typedef enum nccl_result (*nccl_profiler_start_fn)(void *ctx, void **event, void *description);
typedef enum nccl_result (*nccl_profiler_stop_fn)(void *event);
typedef enum nccl_result (*nccl_profiler_state_fn)(void *event, int state, void *args);
typedef enum nccl_result (*nccl_profiler_finalize_fn)(void *ctx);

/* 2.23; version 2: 2.24, 2.25; version 3: 2.26. @events: kinds that are asked for, one for all
 * communicators. */
struct nccl_profiler_v1 {
    const char *name;
    enum nccl_result (*init)(void **ctx, int *events);
    nccl_profiler_start_fn start;
    nccl_profiler_stop_fn stop;
    nccl_profiler_state_fn state;
    nccl_profiler_finalize_fn finalize;
};

/* 2.27. @name: of the communicator, may be NULL. */
struct nccl_profiler_v4 {
    const char *name;
    enum nccl_result (*init)(void **ctx, int *events, const char *name, uint64_t comm_id, int nodes,
                             int ranks, int rank, nccl_logger_fn log);
    nccl_profiler_start_fn start;
    nccl_profiler_stop_fn stop;
    nccl_profiler_state_fn state;
    nccl_profiler_finalize_fn finalize;
};

/* 2.28; version 6: 2.29, 2.30 */
struct nccl_profiler_v5 {
    const char *name;
    enum nccl_result (*init)(void **ctx, uint64_t comm_id, int *events, const char *name, int nodes,
                             int ranks, int rank, nccl_logger_fn log);
    nccl_profiler_start_fn start;
    nccl_profiler_stop_fn stop;
    nccl_profiler_state_fn state;
    nccl_profiler_finalize_fn finalize;
};

#define NET_ABI_PROFILER(version)                                                                  \
    NET_ABI_AT(nccl_profiler_##version, name, 0);                                                  \
    NET_ABI_AT(nccl_profiler_##version, init, 8);                                                  \
    NET_ABI_AT(nccl_profiler_##version, start, 16);                                                \
    NET_ABI_AT(nccl_profiler_##version, stop, 24);                                                 \
    NET_ABI_AT(nccl_profiler_##version, state, 32);                                                \
    NET_ABI_AT(nccl_profiler_##version, finalize, 40);                                             \
    NET_ABI_SIZE(nccl_profiler_##version, 48)
NET_ABI_PROFILER(v1);
NET_ABI_PROFILER(v4);
NET_ABI_PROFILER(v5);

#endif
