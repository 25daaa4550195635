/* What the suites of topology share: a small machine, made function by function, and its paths. */
#ifndef TEST_TOPO_MACHINE_H
#define TEST_TOPO_MACHINE_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "topo/topo_links.h"
#include "topo/topo_load.h"
#include "topo/topo_rank.h"

static struct topo t;
static char why[300];

/* A function with its link, as a source would enter it. */
static inline int fn(unsigned bus, unsigned dev, unsigned f, int parent, int root, uint32_t class,
                     uint16_t vendor, unsigned gts10)
{
    int i = topo_pci_add(&t, 0, (uint8_t)bus, (uint8_t)dev, (uint8_t)f);

    ck_assert_int_ge(i, 0);
    t.pci[i].parent = (int16_t)parent;
    t.pci[i].root = (int16_t)root;
    t.pci[i].class = class;
    t.pci[i].vendor = vendor;
    t.pci[i].cur_mbps = t.pci[i].max_mbps = topo_link_mbps(gts10, 16);
    return i;
}

static inline int bridge(unsigned bus, unsigned dev, int parent, int root, unsigned gts10)
{
    return fn(bus, dev, 0, parent, root, 0x060400, 0x1000, gts10);
}

static inline void gpu(unsigned bus, int parent, int root)
{
    topo_gpu_add(&t, fn(bus, 0, 0, parent, root, 0x030200, 0x10de, 320));
}

static inline void nic(const char *name, unsigned bus, unsigned f, int parent, int root,
                       uint32_t mbps)
{
    struct topo_nic *n = topo_nic_add(&t, name, 1);

    ck_assert_ptr_nonnull(n);
    n->pci = (int16_t)fn(bus, 0, f, parent, root, 0x020700, 0x15b3, 320);
    n->guid = bus * 16 + f;
    n->rate_mbps = mbps;
}

/*
 * Root bus 10 on node 0: a switch with GPU 13, NIC 14 (both functions), and below another switch
 * GPU 17; root port with NIC 19. Root bus 40 on node 0: NIC 41. Root bus 80 on node 1: a switch
 * with GPU 83 and NIC 84. Read in an order that says nothing.
 */
static inline void machine(void)
{
    int root10, root40, root80, up, port, up2;

    topo_clear(&t);
    t.cpu = TOPO_CPU_INTEL, t.cpu_family = 6, t.cpu_model = 0x8f;
    topo_numa_add(&t, 1, 1);
    topo_numa_add(&t, 0, 0);
    root80 = topo_root_add(&t, 0, 0x80);
    port = bridge(0x80, 1, -1, root80, 320);
    t.pci[port].numa = 1;
    up = bridge(0x81, 0, port, root80, 320);
    gpu(0x83, bridge(0x82, 0, up, root80, 320), root80);
    nic("n84", 0x84, 0, bridge(0x82, 1, up, root80, 320), root80, 400000);
    root10 = topo_root_add(&t, 0, 0x10);
    port = bridge(0x10, 1, -1, root10, 320);
    t.pci[port].numa = 0;
    up = bridge(0x11, 0, port, root10, 320);
    up2 = bridge(0x15, 0, bridge(0x12, 2, up, root10, 160), root10, 160);
    gpu(0x17, bridge(0x16, 0, up2, root10, 320), root10);
    port = bridge(0x12, 1, up, root10, 320);
    nic("n14b", 0x14, 1, port, root10, 200000);
    nic("n14a", 0x14, 0, port, root10, 200000);
    gpu(0x13, bridge(0x12, 0, up, root10, 320), root10);
    nic("n19", 0x19, 0, bridge(0x10, 2, -1, root10, 320), root10, 400000);
    root40 = topo_root_add(&t, 0, 0x40);
    port = bridge(0x40, 1, -1, root40, 320);
    t.pci[port].numa = 0;
    nic("n41", 0x41, 0, port, root40, 100000);
    ck_assert_msg(topo_finish(&t, why, sizeof(why)) == 0, "%s", why);
}

static inline int nic_at(const char *name)
{
    for (int i = 0; i < t.nics; i++) {
        if (strcmp(t.nic[i].name, name) == 0) {
            return i;
        }
    }
    ck_abort_msg("no NIC %s", name);
}

static inline const struct topo_path *path_to(enum topo_end_kind kind, int index, const char *name)
{
    static struct topo_path p;

    ck_assert_int_eq(topo_path_find(&t, (struct topo_end){kind, index}, nic_at(name), &p), 0);
    return &p;
}

static inline bool goes_over(const struct topo_path *p, const char *text)
{
    char link[64];

    for (int i = 0; i < p->n; i++) {
        topo_link_text(&t, p->way[i] / 2, link, sizeof(link));
        if (strcmp(link, text) == 0) {
            return true;
        }
    }
    return false;
}

static inline void rates_set(uint32_t mbps)
{
    for (int i = 0; i < t.nics; i++) {
        t.nic[i].rate_mbps = mbps;
    }
}

#endif
