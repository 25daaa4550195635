/* One connection over a fabric with several ways between two NICs, and what its spines do. */
#ifndef WAYS_RIG_H
#define WAYS_RIG_H

#include "tests/unit/watch_rig.h"

#include "tests/fabric/inproc/fab_inproc.h"
#include "tests/fabric/verbs/fab_ibv.h"

#define SPINES 8

static inline void fabric(int nics, enum fab_hash hash, const char *const *options)
{
    struct fab_desc desc;
    char err[128];

    ck_assert_msg(fab_desc_init(&desc, 2, nics, 0, RIG_US, err, sizeof(err)) == 0, "%s", err);
    desc.spines = SPINES;
    desc.hash = hash;
    rig = rig_create_desc(&desc, options);
}

/* The same of InfiniBand: each port has 2^@lmc LIDs, which a switch tells ways by. */
static inline void fabric_lids(int nics, int lmc, int peer_lmc, const char *const *options)
{
    struct fab_desc desc;
    char err[128];

    ck_assert_msg(fab_desc_init(&desc, 2, nics, 0, RIG_US, err, sizeof(err)) == 0, "%s", err);
    desc.spines = SPINES;
    for (int n = 0; n < nics; n++) {
        desc.nic[0][n].ib = (struct fab_ib){.lid = (uint16_t)(0x80 + n * 16), .lmc = (uint8_t)lmc};
        desc.nic[1][n].ib =
            (struct fab_ib){.lid = (uint16_t)(0x180 + n * 16), .lmc = (uint8_t)peer_lmc};
    }
    rig = rig_create_desc(&desc, options);
}

/* One connection, whose first path takes way @first + 1. */
static inline void join(unsigned first)
{
    rig->side[1].inst->probing.connections = first;
    rig_connect(rig, 0, 0);
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
}

static const char *const quiet[] = {QUIET_RC, NULL};

static inline int spine_of(int side, int p)
{
    return fab_inproc_way(rig->f, fab_ibv_qp(rig->side[side].comm->conn.path[p].qp));
}

static inline void spine(int k, const char *what)
{
    char text[64], err[128];

    snprintf(text, sizeof(text), "rail 0 spine %d %s", k, what);
    ck_assert_msg(fab_inproc_fault(rig->f, text, err, sizeof(err)) == 0, "%s", err);
}

/* @n messages at once; how long they take. */
static inline uint64_t burst(int n)
{
    for (int k = 0; k < n; k++) {
        recv_post(k, BIG);
    }
    for (int k = 0; k < n; k++) {
        send_post(k, BIG);
    }
    return finish(n, BIG, 10 * RIG_S);
}

/* A message now and then, for a second; none takes long. */
static inline void trickle(void)
{
    for (int i = 0; i < 20; i++) {
        uint64_t took;

        rig_run(rig, 50 * RIG_MS);
        took = burst(1);
        ck_assert_msg(took < 150 * RIG_MS, "message %d: %.3f ms", i, (double)took / 1e6);
    }
}

/* Packets that spine @k swallowed or lost. */
static inline uint64_t dropped(int k)
{
    return fab_inproc_spine(rig->f, 0, k)->dropped;
}

#endif
