/*
 * Source of a snapshot: hwloc, in a module of its own, because hwloc brings about twenty libraries
 * into a process and the plugin must need none of them. Whoever wants it opens the module at run
 * time (topo_load.h); module and opener meet in this header and in struct topo only, and compare
 * TOPO_HWLOC_ABI, TOPO_ABI and sizes before anything else.
 *
 * hwloc tells less than sysfs: no port rates, no maximum speed of links. README.md has the list.
 */
#ifndef TOPO_HWLOC_H
#define TOPO_HWLOC_H

#include "topo.h"

#define TOPO_HWLOC_ABI    1
#define TOPO_HWLOC_MODULE "libnccl-net-r2-topo-hwloc.so"
#define TOPO_HWLOC_ENTRY  "r2_topo_hwloc_read"

struct topo_hwloc_params {
    uint32_t abi, size; /* TOPO_HWLOC_ABI, of this struct */
    const char *root;   /* captured tree; NULL: the machine. Set through the environment
                           (HWLOC_FSROOT, HWLOC_COMPONENTS): for programs with one thread only */
    const char *xml;    /* a file in place of either; NULL: none */
};

/*
 * Reads into @t, whose abi and size fields say what the caller was built with; finished. 0, or -1
 * with the reason in @why. Blocks for as long as hwloc takes (tens of milliseconds). Nothing to
 * free.
 */
typedef int (*topo_hwloc_read_fn)(const struct topo_hwloc_params *params, struct topo *t, char *why,
                                  size_t why_len);

#endif
