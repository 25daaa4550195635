/*
 * The order of substitutes: which NIC to use when one has failed. Pure, and a function of the
 * snapshot alone: every process of a host, and both ends once they have exchanged what they read,
 * get the same answer, in whatever order the devices were found.
 */
#ifndef TOPO_RANK_H
#define TOPO_RANK_H

#include "topo_path.h"

struct topo_choice {
    int16_t nic; /* index */
    enum topo_class class;
    uint32_t mbps; /* path and port; 0 unknown */
};

/*
 * All NIC ports but @failed (index; -1: none has failed), the best first, as seen from @from: the
 * one that carries most (as NCCL chooses a GPU's NICs), then the nearest, then one that does not
 * share its PCI slot with @failed, then by PCI address, port, GUID and name. Returns how many; 0
 * also for an index that is not there.
 */
int topo_rank(const struct topo *t, struct topo_end from, int failed,
              struct topo_choice choices[TOPO_NICS_MAX]);

#endif
