/*
 * A snapshot from whichever source was chosen (NCCL_R2_TOPO, r2_topo --source). The one entry for
 * everybody but tests.
 */
#ifndef TOPO_LOAD_H
#define TOPO_LOAD_H

#include "topo.h"

enum topo_from { TOPO_FROM_SYSFS, TOPO_FROM_HWLOC, TOPO_FROM_XML };

struct topo_source {
    enum topo_from from;
    const char *root; /* "": this machine; else a directory that has sys/ in it. Not with XML */
    const char *xml;  /* hwloc's, with TOPO_FROM_XML */
};

/* "sysfs", "hwloc" or the name of a file that ends in .xml. Keeps @text for that. 0; -1: none of
 * these. */
int topo_source_parse(const char *text, struct topo_source *source);

/*
 * Reads @source into @t: the facts, and what etc/nccl-net-r2/links below the root says of NVLink
 * and C2C. 0, or -1 with the reason in @why; then @t is empty. hwloc is opened at run time: from
 * the directory of this object or program, from nccl-net-r2/ or ../lib/nccl-net-r2/ beside it, or
 * where the loader looks; it stays open. Any thread, but one at a time with a root and hwloc
 * (topo_hwloc.h). Blocks for the time of the reads.
 */
int topo_load(const struct topo_source *source, struct topo *t, char *why, size_t why_len);

#endif
