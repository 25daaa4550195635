/*
 * What a host looks like to its NICs: an immutable snapshot of the PCI functions between NICs or
 * GPUs and the CPUs, of NUMA nodes and sockets, and of the links between GPUs where somebody says
 * so. A source (topo_sysfs.h, topo_hwloc.h) fills in what it reads; topo_finish() checks it, puts
 * it into an order that does not depend on the order of reading, and computes what links carry.
 * After that nobody writes it: any thread may read it.
 *
 * Nothing in a snapshot is a pointer: it may be copied, compared and handed between libraries of
 * the same TOPO_ABI.
 */
#ifndef TOPO_H
#define TOPO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOPO_ABI         1
#define TOPO_PCI_MAX     256
#define TOPO_ROOTS_MAX   64
#define TOPO_NUMA_MAX    64
#define TOPO_SOCKETS_MAX 8
#define TOPO_NICS_MAX    64
#define TOPO_GPUS_MAX    32
#define TOPO_NAME        64 /* with the terminating zero, as IBV_SYSFS_NAME_MAX */
#define TOPO_BDF         20 /* bytes for the text of an address, with the terminating zero */
#define TOPO_MBPS_MAX    (1u << 23) /* 8 Tb/s: what is above it is not believed */

/* Which end of a PCI link a function is. A link is counted at its lower end. */
enum topo_port {
    TOPO_PORT_ROOT,   /* bridge on a root bus */
    TOPO_PORT_UP,     /* switch, towards the CPU */
    TOPO_PORT_DOWN,   /* switch, away from it */
    TOPO_PORT_END,    /* endpoint behind a link */
    TOPO_PORT_INSIDE, /* endpoint on a root bus or on a switch's own bus: no link that is known */
};

struct topo_pci {
    uint32_t domain;
    uint8_t bus, dev, fn;
    uint8_t port;   /* enum topo_port; topo_finish() */
    int16_t parent; /* in pci[]; -1: on a root bus */
    int16_t root;   /* in roots[] */
    int16_t numa;   /* in numa[] once finished, the kernel's number before; -1 unknown */
    uint16_t vendor, device;
    uint16_t gts10; /* of the link as it runs, in 0.1 GT/s per lane; 0 unknown */
    uint32_t class; /* 24 bits: class, subclass, interface */
    uint8_t width;  /* lanes in use; 0 unknown */
    uint8_t reserved[3];
    uint32_t cur_mbps; /* what the link carries as it runs, each way; 0 unknown */
    uint32_t max_mbps; /* what this end could; 0 unknown */
    uint32_t mbps;     /* topo_finish(): the link's capacity each way; 0: no link, or unknown */
};

struct topo_root {
    uint32_t domain;
    uint8_t bus;
    uint8_t reserved;
    int16_t numa; /* topo_finish(): in numa[]; -1 unknown */
};

/* Only nodes with CPUs: memory alone is nobody's neighbour. */
struct topo_numa {
    int32_t id;          /* the kernel's number */
    int32_t socket;      /* the kernel's number of the package; -1 unknown */
    int8_t socket_index; /* topo_finish(): 0 ..., by number; -1 unknown */
    uint8_t reserved[3];
};

enum topo_state {
    TOPO_STATE_UNKNOWN,
    TOPO_STATE_DOWN,
    TOPO_STATE_INIT,
    TOPO_STATE_ARMED,
    TOPO_STATE_ACTIVE
};
enum topo_layer { TOPO_LAYER_UNKNOWN, TOPO_LAYER_IB, TOPO_LAYER_ETH };

/* One port of an RDMA device. */
struct topo_nic {
    char name[TOPO_NAME];
    uint8_t port;  /* from 1 */
    uint8_t state; /* enum topo_state */
    uint8_t layer; /* enum topo_layer */
    uint8_t reserved;
    int16_t pci; /* in pci[]; -1: not a PCI device */
    uint16_t reserved2;
    uint64_t guid;      /* of the node; 0 unknown */
    uint32_t rate_mbps; /* as the port says; 0 unknown. topo_nic_mbps() is what counts */
    uint32_t reserved3;
};

struct topo_gpu {
    int16_t pci;
    uint16_t reserved;
    uint32_t c2c_mbps; /* coherent link to the CPU of its NUMA node, each way; 0: none known */
};

enum topo_cpu {
    TOPO_CPU_UNKNOWN,
    TOPO_CPU_INTEL,
    TOPO_CPU_AMD,
    TOPO_CPU_ZHAOXIN,
    TOPO_CPU_ARM,
    TOPO_CPU_POWER
};

/* What a snapshot does not know; bits of struct topo.unknown. */
enum topo_unknown {
    TOPO_NO_NVLINK = 1, /* links between GPUs: neither sysfs nor /proc tells */
    TOPO_NO_MAX_LINK =
        2,             /* links at their present speed only: that of an idle GPU may be too low */
    TOPO_NO_RATE = 4,  /* the rate of some NIC port */
    TOPO_NO_NUMA = 8,  /* the NUMA node of some NIC or GPU */
    TOPO_NO_CPU = 16,  /* the CPU model, hence what goes between sockets */
    TOPO_NO_LINK = 32, /* the link of some NIC or GPU */
    TOPO_CUT = 64,     /* there were more devices than the limits above */
    TOPO_BAD = 128,    /* something had contents that were not believed */
};

struct topo {
    uint32_t abi, size; /* TOPO_ABI, sizeof(struct topo): topo_clear() */
    uint16_t pcis, roots, numas, nics, gpus;
    uint16_t unknown; /* enum topo_unknown */
    uint8_t cpu;      /* enum topo_cpu */
    uint8_t sockets;  /* topo_finish() */
    uint16_t cpu_family, cpu_model, reserved;
    uint32_t inter_mbps; /* topo_finish(): between two sockets, each way; 0 unknown */
    struct topo_pci pci[TOPO_PCI_MAX];
    struct topo_root root[TOPO_ROOTS_MAX];
    struct topo_numa numa[TOPO_NUMA_MAX];
    struct topo_nic nic[TOPO_NICS_MAX];
    struct topo_gpu gpu[TOPO_GPUS_MAX];
    uint32_t nvlink_mbps[TOPO_GPUS_MAX][TOPO_GPUS_MAX]; /* each way; 0: none */
};

/* No padding: snapshots are compared as bytes, and are the same for plugin and module. */
_Static_assert(sizeof(struct topo_pci) == 40 && sizeof(struct topo_root) == 8 &&
                   sizeof(struct topo_numa) == 12 && sizeof(struct topo_nic) == 88 &&
                   sizeof(struct topo_gpu) == 8,
               "the structs of TOPO_ABI 1");

/* An empty snapshot. Does not block, as nothing else in this header does. */
void topo_clear(struct topo *t);

/*
 * Makes a snapshot of what a source has put into @t: indices are checked, functions sorted by
 * address, NICs by address, port, GUID and name, GPUs by address, nodes by number; unknown nodes
 * are taken from the parent or the root bus, or are the only node there is; capacities are
 * computed. 0, or -1 with the reason in @why when the contents contradict themselves (a loop of
 * parents, two functions with one address); then @t is empty.
 */
int topo_finish(struct topo *t, char *why, size_t why_len);

/* --- for sources, before topo_finish() --- */

/* Each returns the index of the new or known entry, -1 when the table is full (and sets TOPO_CUT).
 */
int topo_root_add(struct topo *t, uint32_t domain, uint8_t bus);
int topo_pci_add(struct topo *t, uint32_t domain, uint8_t bus, uint8_t dev, uint8_t fn);
int topo_pci_find(const struct topo *t, uint32_t domain, uint8_t bus, uint8_t dev, uint8_t fn);
int topo_numa_add(struct topo *t, int id, int socket);
struct topo_nic *
topo_nic_add(struct topo *t, const char *name,
             unsigned port); /* NULL when full, or for a name or port that cannot be */
int topo_gpu_add(struct topo *t, int pci);

/* "DDDD:BB:DD.F" at the start of @text, domain of 4 to 8 digits; returns its length, 0 when there
 * is none. */
size_t topo_bdf_parse(const char *text, uint32_t *domain, uint8_t *bus, uint8_t *dev, uint8_t *fn);

/*
 * Mb/s each way that @width lanes of @gts10 / 10 GT/s carry, 0 for speeds and widths that PCI
 * Express does not have. Counted as NCCL counts (kvDictPciGen in src/graph/topo.cc: 1.5, 3, 6, 12,
 * 24, 48 Gb/s per lane): what is left for data after encoding and packet headers.
 */
uint32_t topo_link_mbps(unsigned gts10, unsigned width);

/* An NVIDIA display or 3D controller. */
bool topo_is_gpu(uint32_t class, uint16_t vendor);

/* --- for readers, after it --- */

/* "0000:17:00.0" into @out, TOPO_BDF bytes. Returns @out. */
char *topo_bdf_text(const struct topo_pci *p, char *out);
const char *topo_state_name(unsigned state);
const char *topo_cpu_name(unsigned cpu);
/* The text for one bit of enum topo_unknown; NULL for another number. */
const char *topo_unknown_text(unsigned bit);
/* Socket (index) of a NUMA node (index); -1 unknown. */
int topo_socket_of(const struct topo *t, int numa);
/*
 * What counts as the rate of the port of @nic (index) in Mb/s: what it says; for a port that is
 * down the slowest of those that are not, which is no more than a guess. 0: unknown, or nobody says
 * one.
 */
uint32_t topo_nic_mbps(const struct topo *t, int nic);

#endif
