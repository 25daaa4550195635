/* What the suites of weights share: machines built function by function, and what of a plan a path
 * has. */
#ifndef TOPO_RIG_H
#define TOPO_RIG_H

#include <check.h>

#include "plugin/core/r2_inst.h"
#include "topo/topo_path.h"

static struct topo t;

/* A function of 32 GT/s, 16 lanes, on NUMA node @node. */
static inline int fn_on(unsigned bus, unsigned dev, int parent, int root, uint32_t class,
                        uint16_t vendor, int node)
{
    int i = topo_pci_add(&t, 0, (uint8_t)bus, (uint8_t)dev, 0);

    ck_assert_int_ge(i, 0);
    t.pci[i].parent = (int16_t)parent;
    t.pci[i].root = (int16_t)root;
    t.pci[i].class = class;
    t.pci[i].vendor = vendor;
    t.pci[i].numa = (int16_t)node;
    t.pci[i].cur_mbps = t.pci[i].max_mbps = topo_link_mbps(320, 16);
    return i;
}

/* Port 1 of 400 Gb/s. */
static inline void nic_on(const char *name, unsigned bus, int parent, int root, int node)
{
    struct topo_nic *n = topo_nic_add(&t, name, 1);

    ck_assert_ptr_nonnull(n);
    n->pci = (int16_t)fn_on(bus, 0, parent, root, 0x020700, 0x15b3, node);
    n->guid = bus;
    n->rate_mbps = 400000;
}

/* Percent of the plan of sender @c on path @p. */
static inline int share_of(const struct r2_comm *c, int p)
{
    const struct r2_plan *plan = &c->tx->plan;
    uint64_t sum = 0, own = 0;

    for (int i = 0; i < plan->n; i++) {
        sum += plan->weight[i];
        own += plan->path[i] == p ? plan->weight[i] : 0;
    }
    return sum ? (int)((own * 200 / sum + 1) / 2) : 0;
}

#endif
