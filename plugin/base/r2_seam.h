/*
 * Where the plugin meets libr2coll.so, which runs communicators in another order of ranks
 * (docs/collectives.md, "Switching together"), in one process: the plugin looks for this symbol
 * among those of the process.
 */
#ifndef R2_SEAM_H
#define R2_SEAM_H

#include <stdbool.h>

#define R2_SEAM_SYMBOL "r2coll_seam_v1"

struct r2_seam {
    /* Asked by NCCL's tuner when a communicator is made: whether the calling thread makes one whose
     * all_reduce is to be by Tree. Does not block. */
    bool (*is_shadow)(void);
    /* NICs of this process, those that a communicator that is made now would find usable, those
     * that its connections are at home on, whether usable or not, and what one of them carries when
     * all is well, MB/s. Again and again, changed or not. Any thread; does not block. */
    void (*nics)(unsigned nics, unsigned usable, unsigned used, unsigned mbps);
};

/* Whether @file, of NCCL_TUNER_PLUGIN or NCCL_PROFILER_PLUGIN, is a name of the plugin's library,
 * with or without a folder; NULL: no. Pure. */
bool r2_seam_is_plugin(const char *file);

/* NULL: libr2coll.so is not there. Any thread; does not block. */
const struct r2_seam *r2_seam_find(void);

#endif
