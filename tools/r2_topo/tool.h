/* r2_topo: what its parts share. One thread. */
#ifndef R2_TOPO_TOOL_H
#define R2_TOPO_TOOL_H

#include <stdio.h>

#include "topo/topo_load.h"
#include "topo/topo_path.h"

struct tool {
    struct topo t;
    const char *source; /* "sysfs", "hwloc", or the XML file */
    const char *root;   /* "": this machine */
    int order;          /* substitutes, too */
};

#define NIC_TEXT 80 /* bytes for a port's name */

/* "mlx5_3:1". Returns @out. */
const char *nic_text(const struct topo *t, int nic, char *out);

/* Gb/s in few digits, "?" for unknown. Returns @out (16 bytes). */
const char *gbps_text(uint32_t mbps, char *out);

/* From where substitutes are asked for: the GPUs, or the NUMA nodes of a machine without. */
int ends_count(const struct topo *t);
struct topo_end end_at(const struct topo *t, int i);
const char *end_text(const struct topo *t, int i, char *out); /* "GPU0", "node 1"; 16 bytes */

/* Whole outputs; errors of @f are the caller's to look for. */
void text_write(FILE *f, const struct tool *tool);
void json_write(FILE *f, const struct tool *tool);
void svg_write(FILE *f, const struct tool *tool);

#endif
