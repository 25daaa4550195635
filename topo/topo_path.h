/*
 * The way between a GPU or the memory of a NUMA node and a NIC: how far, over which links, and what
 * those carry. Pure; finished snapshots only.
 *
 * Classes are those of nvidia-smi topo -m; NCCL's (src/graph/topo.h, src/include/graph.h) are the
 * same but for NODE, which it counts as PHB, and P2C, which nvidia-smi does not have.
 */
#ifndef TOPO_PATH_H
#define TOPO_PATH_H

#include "topo.h"

enum topo_class {            /* near to far */
                  TOPO_PIX,  /* at most one PCI switch */
                  TOPO_PXB,  /* several switches, no host bridge */
                  TOPO_P2C,  /* the GPU's coherent link to its CPU, then PCI */
                  TOPO_PHB,  /* the host bridge */
                  TOPO_NODE, /* two host bridges of one NUMA node */
                  TOPO_SYS,  /* between NUMA nodes, or the node of one end is unknown */
                  TOPO_NONE, /* the NIC is no PCI device */
};

/*
 * Links by number. A PCI link has the number of the port at its upper end, so that all functions of
 * a card share it; what is inside the CPU or a switch without a port above has its own. Each link
 * is two resources, one per direction: up is towards the CPU, out of the GPU or the NIC.
 */
enum {
    TOPO_LINK_ROOT = TOPO_PCI_MAX, /* + root: host bridge */
    TOPO_LINK_SOCKETS =
        TOPO_LINK_ROOT +
        TOPO_ROOTS_MAX, /* + low socket * TOPO_SOCKETS_MAX + high socket; up: low to high */
    TOPO_LINK_NVLINK =
        TOPO_LINK_SOCKETS + TOPO_SOCKETS_MAX * TOPO_SOCKETS_MAX, /* + GPU; up: out of the GPU */
    TOPO_LINK_C2C = TOPO_LINK_NVLINK + TOPO_GPUS_MAX,            /* + GPU */
    TOPO_LINK_NIC = TOPO_LINK_C2C + TOPO_GPUS_MAX, /* + NIC: its port; down: sending */
    TOPO_LINKS = TOPO_LINK_NIC + TOPO_NICS_MAX,
};
#define TOPO_WAYS       (2 * TOPO_LINKS) /* link * 2, + 1 for down */
#define TOPO_PATH_LINKS 48

enum topo_end_kind { TOPO_END_GPU, TOPO_END_NUMA };
struct topo_end {
    enum topo_end_kind kind;
    int index; /* in gpu[] or numa[] */
};

struct topo_path {
    enum topo_class class;
    bool guess;    /* SYS because a NUMA node is unknown */
    bool complete; /* the capacity of every PCI, C2C and socket link is known */
    uint8_t n;
    uint16_t way[TOPO_PATH_LINKS]; /* from @from to the NIC; its port is not among them */
    uint32_t mbps;                 /* the smallest that is known; 0: none is */
};

/* The path from @from to @nic (index); the other direction is the same links, each the other way.
 * -1 for an index that is not there. */
int topo_path_find(const struct topo *t, struct topo_end from, int nic, struct topo_path *path);

/* What the whole of a way carries in Mb/s: path and port of @nic (topo_nic_mbps()); 0 unknown. */
uint32_t topo_path_nic_mbps(const struct topo *t, const struct topo_path *path, int nic);

/* Capacity of a link each way in Mb/s; 0: there is none, or it is unknown (host bridges always
 * are). */
uint32_t topo_link_capacity(const struct topo *t, int link);

/* What a link is, for people: "PCI 0000:15:01.0", "host bridge 0000:15", "sockets 0-1". */
void topo_link_text(const struct topo *t, int link, char *out, size_t len);

const char *topo_class_name(enum topo_class class);

#endif
