/*
 * From what is known of the paths of all connections of a host to the weights of each connection:
 * puts equal connections together, makes the net that balance_fill() divides, and hands the result
 * back per connection. Pure; the caller's memory; does not block. docs/balance.md.
 *
 * Numbers may come from peers and from other processes: rates above BALANCE_MBPS_MAX are unknown,
 * NICs out of range are left out, nothing that is said here becomes an index unchecked.
 *
 * A connection's weights are for the paths of its plan alone. Which these are is decided elsewhere
 * (ib_send_plan_paths): the primary NIC pair while it is usable, afterwards all usable ones; with
 * NCCL_R2_SPREAD all usable ones from the beginning, with conn->wide those of it. So a plan takes
 * in other NICs' paths while no NIC is dead (r2_balance_wide, r2_balance_make_room), and a path
 * that is slow without being dead gets less by its mbps_measured.
 */
#ifndef BALANCE_PLAN_H
#define BALANCE_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "balance_fill.h"

#define BALANCE_PLAN_NICS   32
#define BALANCE_PLAN_PATHS  8
#define BALANCE_PLAN_WAYS   10   /* links of a path inside this host that are announced */
#define BALANCE_PLAN_LINKS  4096 /* of this host */
#define BALANCE_PLAN_CONNS  65536
#define BALANCE_PLAN_OTHERS 256
#define BALANCE_PLAN_GROUPS                                                                        \
    512 /* different connections; those beyond are divided by their own paths alone */
#define BALANCE_MBPS_UNKNOWN 100000 /* stands for ports where none says its rate */
#define BALANCE_PLAN_KEEP    1024   /* of BALANCE_ONE; above what hysteresis passes over */

/* One NIC pair of a connection. Rates in Mb/s, 0: unknown, which limits nothing. */
struct balance_pair {
    uint8_t nic,
        there; /* number of the NIC here, below BALANCE_PLAN_NICS, and of that at the other end */
    uint8_t ways;                    /* of way[] */
    uint8_t reserved;                /* 0: no padding, the bytes are compared */
    uint16_t way[BALANCE_PLAN_WAYS]; /* links of this host that it crosses, numbers of
                                        balance_facts.link */
    uint32_t port_there;             /* the port at the other end */
    uint32_t reach_there;            /* the way inside that host */
    uint32_t mbps_measured; /* what it was seen to carry of all connections over this NIC pair when
                               they had all that they wanted; of several told the largest counts */
    uint32_t nic_measured;  /* with it: what the NIC here was seen to carry of all connections then;
                               limits those whose pairs have a measured rate */
};

/* A connection that sends. Zeroed before it is filled in: equal ones are found by their bytes. */
struct balance_conn {
    uint32_t host; /* the other end's ports: connections with the same number share these */
    uint32_t n;    /* NIC pairs of its plan, in pair[]; 0: nothing to divide */
    struct balance_pair pair[BALANCE_PLAN_PATHS];
};

/* What other processes of this host send. */
struct balance_other {
    uint32_t nics;   /* bit per NIC here over which it may go */
    uint32_t conns;  /* 0: none, and the entry is passed over */
    uint64_t demand; /* as that of connections, of all of them together */
};

struct balance_facts {
    uint32_t nics, links, conns, others;
    uint32_t port[BALANCE_PLAN_NICS]; /* Mb/s of each NIC's port */
    const uint32_t *link;             /* Mb/s of each link; 0 unknown */
    const struct balance_conn *conn;
    const uint64_t *demand; /* per connection: bytes per second lately, or any other unit; all 0:
                               each counts alike */
    const struct balance_other *other;
};

/* Bytes of working memory for @f; 0 when it is out of the bounds above. */
size_t balance_plan_size(const struct balance_facts *f);

/*
 * weight[c][i] for pair i of connection c, of BALANCE_ONE; those of a connection add up to it, or
 * are all 0 where n is 0. A path with a measured rate has BALANCE_PLAN_KEEP at least, or what
 * balance_plan_own() gives it if that is less. @work: balance_plan_size() bytes, aligned to 8. -1,
 * and nothing filled in, when the facts are out of bounds.
 */
int balance_plan(const struct balance_facts *f, void *work, uint32_t (*weight)[BALANCE_PLAN_PATHS]);

/*
 * The weights of one connection by its own pairs alone: in proportion to the smallest of their
 * limits. What a path has before anything better is known, and what a failure is met with. Of @f
 * the ports and links count. Adds up to BALANCE_ONE; all 0 for n 0.
 */
void balance_plan_own(const struct balance_facts *f, const struct balance_conn *c,
                      uint32_t weight[BALANCE_PLAN_PATHS]);

/*
 * Percent of a port that a GPU reaches across a host bridge: peer-to-peer transfers were measured
 * at 234 of 400 Gb/s. Up to a PCI switch it is all of it.
 */
#define BALANCE_BRIDGE_PERCENT 58

#endif
