/*
 * Description of a fabric: hosts, their NICs, where each NIC sits, link rate and latency.
 *
 * NIC k of every host is on rail k. Rails do not reach each other unless crossrail is set.
 *
 * Text form, one statement per line, '#' starts a comment:
 *     hosts 2
 *     nics 4
 *     rate 100MB/s                  all NICs; 0 or "unlimited": no limit
 *     latency 10us                  one way, all NICs
 *     crossrail
 *     reorder                       see struct fab_desc
 *     spines 4                      ways between any two ports of a rail (fab_spine.h)
 *     hash qp                       what chooses among them: ports, or qp as well
 *     nic 1 pci pci0000:00/0000:00:01.0/0000:17:00.0 numa 0 rate 50MB/s latency 2us
 *                                   NIC 1 of every host
 *     host 0 nic 3 numa 1           NIC 3 of host 0 only
 * hosts and nics come before lines that name a host or a NIC.
 */
#ifndef FAB_DESC_H
#define FAB_DESC_H

#include "fab_engine.h"

#include <stdbool.h>

#define FAB_MAX_HOSTS  32
#define FAB_MAX_NICS   16
#define FAB_MAX_SPINES 64 /* per rail */
#define FAB_GIDS                                                                                   \
    4 /* 0: RoCE v1 link-local, 1: v2 link-local, 2: v1 IPv4, 3: v2 IPv4 (10.10.<rail>.<host+1>)   \
       */
#define FAB_REORDER_NS 50000 /* how late a write is at most, with reorder */

#define FAB_ECE_VENDOR  0xfab
#define FAB_ECE_OPTIONS 0x3005

struct fab_nic_desc {
    char pci[104];       /* path below /sys/devices, ending in the function's address */
    int numa;            /* -1: unknown */
    uint64_t rate;       /* bytes per second, 0: unlimited */
    uint64_t latency_ns; /* half of the way to the switch and on: a packet takes the mean of both
                            ends' values */
    struct fab_ib ib;    /* in-process engine alone; no text form */
    struct fab_ece ece; /* the same; FAB_ECE_VENDOR, FAB_ECE_OPTIONS unless a test says otherwise */
};

/* What switches choose a spine by (fab_spine.h): addresses and UDP ports; the number of the
 * destination queue pair as well. */
enum fab_hash { FAB_HASH_PORTS, FAB_HASH_QP, FAB_HASHES };

struct fab_desc {
    int hosts;
    int nics;
    bool crossrail;
    int spines;         /* per rail; 0 is 1 */
    enum fab_hash hash; /* what chooses among them */
    bool reorder; /* plain writes of a queue pair overtake each other, by up to FAB_REORDER_NS */
    int leaf;     /* hosts below one leaf switch (fab_spine.h); 0: each has its own. In-process
                     engine alone; no text form */
    struct fab_nic_desc nic[FAB_MAX_HOSTS][FAB_MAX_NICS];
};

/*
 * Fills @d with @hosts x @nics equal NICs at plausible places (the first half of the NICs at NUMA
 * node 0, the others at 1, two NICs below each PCIe switch). -1 with the reason in @err when a
 * number is out of range.
 */
int fab_desc_init(struct fab_desc *d, int hosts, int nics, uint64_t rate, uint64_t latency_ns,
                  char *err, size_t err_len);

/* Parses the text form. -1 with line and reason in @err. */
int fab_desc_parse(struct fab_desc *d, const char *text, char *err, size_t err_len);

/* "100MB/s", "2.5GB/s", "10Gb/s", "64KiB/s", "0", "unlimited" to bytes per second. "5ms", "10us",
 * "250ns", "2s" to ns. "1%", "0.1%" to parts per million. 0, or -1 if @text is not of that form. */
int fab_parse_rate(const char *text, uint64_t *bytes_per_s);
int fab_parse_time(const char *text, uint64_t *ns);
int fab_parse_percent(const char *text, uint32_t *ppm);
/* "ports", "qp"; -1 if @text is neither. "unknown" for a value that is none. */
int fab_parse_hash(const char *text, enum fab_hash *hash);
const char *fab_hash_name(enum fab_hash hash);

/* Name of NIC @nic ("fab0"), its node GUID in network byte order, entry @index of its GID table for
 * address @epoch. */
void fab_nic_name(int nic, char *name, size_t len);
uint64_t fab_nic_guid(int host, int nic);
void fab_gid_make(int host, int nic, uint32_t epoch, int index, union ibv_gid *gid);

/*
 * The place that @gid names, as seen from NIC @from_nic: 0; ETIMEDOUT if no NIC of @d has such a
 * GID or it is on another rail without crossrail. Engines use it for fab_engine_ops.resolve.
 */
int fab_desc_resolve(const struct fab_desc *d, int from_nic, const union ibv_gid *gid,
                     struct fab_addr *dst);

/*
 * The place where packets of NIC @nic of @host with address handle @ah arrive: 0; ETIMEDOUT as
 * above, on Ethernet. On InfiniBand nobody asks the other end: where no port takes such a packet,
 * the place has an address that no NIC has, and packets for it vanish.
 */
int fab_desc_route(const struct fab_desc *d, int host, int nic, const struct ibv_ah_attr *ah,
                   struct fab_addr *dst);
/* Entry @index of the GID table of a port of InfiniBand, @gid being what fab_gid_make says: 0 has
 * no FLID, 1 has one where there is, the rest is empty. */
void fab_gid_ib(const struct fab_ib *ib, int index, union ibv_gid *gid);
/* The subnet that the GID of a port of InfiniBand names. */
static inline uint16_t fab_gid_subnet(const union ibv_gid *gid)
{
    return (uint16_t)(gid->raw[6] << 8 | gid->raw[7]);
}

#endif
