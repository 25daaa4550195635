/*
 * Source of a snapshot: sysfs and /proc/cpuinfo below a root directory. libc alone, so the plugin's
 * own.
 *
 * Places in the PCI tree are taken from the text of the links in /sys/bus/pci/devices and
 * /sys/class/infiniband, not by following them. What a file does not tell, or tells in a way that
 * makes no sense, is unknown (struct topo.unknown); a tree without PCI or without NICs is an empty
 * one.
 */
#ifndef TOPO_SYSFS_H
#define TOPO_SYSFS_H

#include "topo.h"
#include "topo_io.h"

/*
 * Reads the host whose "/" is @io into @t, finished. 0, or -1 with the reason in @why; then @t is
 * empty. Any thread; some hundred small reads (about 5 ms), so not on a data path. Nothing is kept,
 * nothing to free.
 */
int topo_sysfs_read(const struct topo_io *io, struct topo *t, char *why, size_t why_len);

#endif
