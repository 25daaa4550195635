/*
 * A plugin's table of any version through the calls of version 8, as NCCL itself does the reverse:
 * what the newer one takes besides (contexts, configuration, profiler handles) is supplied as the
 * NCCL of that version supplies it. One table per process: the calls of version 8 have no room to
 * say which.
 */
#ifndef R2_PERF_ABI_VIEW_H
#define R2_PERF_ABI_VIEW_H

#include "tools/r2_perf/abi_next.h"

#define ABI_VIEW_OLDEST 8
#define ABI_VIEW_NEWEST 12

/* What there is to say to the newer versions. Set by the caller, before init or the call that it
 * concerns. */
struct abi_view {
    int version;       /* of the table in use; set by abi_view_find */
    const void *table; /* struct abi_net or struct abi_net_v9, _v10, _v11 */
    void *ctx;         /* since version 11, of the last init; NULL: none, or finalized */
    uint64_t comm_id;
    int traffic_class;
    int optional; /* mark receives of one buffer as such whose completion is optional, as NCCL does
                     for LL */
    int profiled; /* calls of the profiler; relaxed */
    abi_profiler_t profiler; /* gets them; NULL: nobody */
};
extern struct abi_view abi_view;

/*
 * The table of @version in the library @lib, 0: the newest there is, looked for from the newest
 * down, as NCCL does. NULL when there is none. Thread: one. The table belongs to the library.
 */
const struct abi_net *abi_view_find(void *lib, int version);
/* The communicator ends: finalize of its context. The plugin's result; 0 for versions that have no
 * finalize. */
int abi_view_finalize(void);
/* "ncclNetPlugin_v12" */
const char *abi_view_symbol(int version);

#endif
