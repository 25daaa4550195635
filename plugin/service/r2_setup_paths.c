/* Which NIC pairs a connection gets, how many queue pairs over each, and what is wrong with them.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "balance/r2_balance.h"
#include "base/r2_log.h"
#include "core/r2_inst.h"
#include "ib_transport/ib_wire.h"
#include "ib_transport/verbs/ib_hca.h"
#include "r2_setup.h"

#define CLASS_MOST                                                                                 \
    4 /* a backup that nobody has named has at least one part in so many of the primary's rate */
/* A backup that is up is wanted so much more than one that is down: a second port without a cable
 * takes no place from a NIC that carries. */
#define UP_MORE 160
/* How much a pair across rails is wanted of which both ends are up: less than any such pair of a
 * rail, more than any with an end that is down. */
#define CROSS_UP (2 * UP_MORE + 1)

_Static_assert(UP_MORE + R2_PREFERENCE_MOST <= UINT8_MAX, "it is announced in a byte");
_Static_assert(UP_MORE + 2 * R2_PREFERENCE_MOST < CROSS_UP && CROSS_UP < 2 * (UP_MORE + 1),
               "a pair with an end down, of what topology prefers most; across; the least of those "
               "that are up");
_Static_assert(R2_MOST_rq_depth <= IB_RECORDS,
               "a slot for the record of every receive that S may use");

/* A NIC of last resort, of either host. */
static bool is_last(const struct fo_nic *nic)
{
    return nic->rail >= IB_LAST_RAIL_RDMA;
}

static bool is_tcp(const struct fo_nic *nic)
{
    return nic->rail >= IB_LAST_RAIL;
}

/* Inserts a pair behind those that are preferred as much or more; never before the primary. */
static int add_pair(uint8_t *s_out, uint8_t *r_out, int *pref, int n, int s, int r, int p)
{
    int at = n;

    for (int i = 0; i < n; i++) {
        if (s_out[i] == s && r_out[i] == r) {
            return n;
        }
    }
    while (at > 1 && pref[at - 1] < p) {
        at--;
    }
    if (at >= IB_MAX_PATHS) {
        return n;
    }
    for (int i = n < IB_MAX_PATHS ? n : IB_MAX_PATHS - 1; i > at; i--) {
        s_out[i] = s_out[i - 1];
        r_out[i] = r_out[i - 1];
        pref[i] = pref[i - 1];
    }
    s_out[at] = (uint8_t)s;
    r_out[at] = (uint8_t)r;
    pref[at] = p;
    return n < IB_MAX_PATHS ? n + 1 : n;
}

/* The paths of last resort, behind all others, and the one over TCP behind those over RDMA: in the
 * place of the last one where all are taken. */
static int add_last(const struct fo_nic *s_nic, int s_n, const struct fo_nic *r_nic, int r_n,
                    uint8_t *s_out, uint8_t *r_out, int n)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        for (int s = 0; s < s_n; s++) {
            for (int r = 0; r < r_n; r++) {
                int at = tcp && n == IB_MAX_PATHS ? n - 1 : n;

                if (is_last(&s_nic[s]) && is_tcp(&s_nic[s]) == tcp && s_nic[s].usable &&
                    r_nic[r].usable && s_nic[s].rail == r_nic[r].rail && at < IB_MAX_PATHS) {
                    s_out[at] = (uint8_t)s;
                    r_out[at] = (uint8_t)r;
                    n = at + 1;
                }
            }
        }
    }
    return n;
}

static int all_but_last(const struct fo_nic *s_nic, int s_n, int s_dev, const struct fo_nic *r_nic,
                        int r_n, int r_dev, int any_rail, uint8_t s_out[IB_MAX_PATHS],
                        uint8_t r_out[IB_MAX_PATHS])
{
    int pref[IB_MAX_PATHS];
    int n = add_pair(s_out, r_out, pref, 0, s_dev, r_dev, 0);

    /* same rail, beginning beside the primary so that the backups of different primaries differ */
    for (int i = 0; i < s_n; i++) {
        int s = (s_dev + i) % s_n;

        for (int r = 0; r < r_n; r++) {
            if (s_nic[s].usable && r_nic[r].usable && s_nic[s].rail == r_nic[r].rail &&
                !is_last(&s_nic[s])) {
                n = add_pair(s_out, r_out, pref, n, s, r, s_nic[s].usable + r_nic[r].usable);
            }
        }
    }
    for (int i = 0; any_rail && i < s_n; i++) {
        for (int j = 0; j < r_n; j++) {
            int s = (s_dev + i) % s_n, r = (r_dev + i + j) % r_n;
            bool up = s_nic[s].usable > UP_MORE && r_nic[r].usable > UP_MORE;

            if (s_nic[s].usable && r_nic[r].usable && !is_last(&s_nic[s]) && !is_last(&r_nic[r])) {
                n = add_pair(s_out, r_out, pref, n, s, r, up ? CROSS_UP : 0);
            }
        }
    }
    return n;
}

/* Where one end of the connection is on one over TCP, its host has no NICs. */
int r2_setup_paths(const struct fo_nic *s_nic, int s_n, int s_dev, const struct fo_nic *r_nic,
                   int r_n, int r_dev, int any_rail, uint8_t s_out[IB_MAX_PATHS],
                   uint8_t r_out[IB_MAX_PATHS])
{
    int n = 0;

    if (!is_tcp(&s_nic[s_dev]) && !is_tcp(&r_nic[r_dev])) {
        n = all_but_last(s_nic, s_n, s_dev, r_nic, r_n, r_dev, any_rail, s_out, r_out);
    }
    return add_last(s_nic, s_n, r_nic, r_n, s_out, r_out, n);
}

int r2_setup_more(uint8_t s_out[IB_MAX_PATHS], uint8_t r_out[IB_MAX_PATHS], int n, int qps)
{
    int pairs = n;

    for (int i = 0; i < pairs; i++) {
        for (int k = 1; k < qps && n < IB_MAX_PATHS; k++, n++) {
            s_out[n] = s_out[i];
            r_out[n] = r_out[i];
        }
    }
    return n;
}

void r2_setup_check_qps(struct r2_comm *c, int wanted)
{
    int got = __builtin_popcount(ib_conn_pair(&c->conn, 0));

    if (got < wanted && !c->inst->logged.qps) {
        c->inst->logged.qps = 1;
        R2_WARN(
            "NCCL_IB_QPS_PER_CONNECTION=%d: a connection gets %d queue pairs over its NIC pair, since it has at most %d in all and one for "
            "each of %d NIC pairs; NCCL_R2_BACKUP_NICS makes these fewer",
            wanted, got, IB_MAX_PATHS, ib_conn_pairs(&c->conn, ~0u));
    }
}

void r2_setup_check_path(struct r2_comm *c, int p)
{
    const struct ib_path *path = &c->conn.path[p];
    const struct ib_nic *nic = &c->inst->nics.nic[path->nic];

    if (atomic_load_explicit(&nic->generation, memory_order_relaxed) != path->gen.ours ||
        ib_nic_state_get(nic) != IB_NIC_UP) {
        fo_fault(&c->fo, p, &(struct ib_fault_info){.fault = IB_FAULT_PORT});
    } else if ((int32_t)(c->peer->down.dead_gen[path->peer_nic] - path->gen.peer) > 0) {
        fo_fault(&c->fo, p, &(struct ib_fault_info){.fault = IB_FAULT_PEER_NIC});
    } else if (c->qp_lost >> p & 1) {
        fo_fault(&c->fo, p, &(struct ib_fault_info){.fault = IB_FAULT_QP});
    }
}

static bool is_named(const struct r2_inst *inst)
{
    struct ib_hca_filter f;
    char why[128];

    return inst->cfg.ib_hca[0] && ib_hca_parse(&f, inst->cfg.ib_hca, why, sizeof(why)) == 0 &&
           f.count > 0 && !f.exclude;
}

static bool has_list(const struct r2_inst *inst, struct ib_hca_filter *f)
{
    char why[128];

    return inst->cfg.backup_nics[0] != 0 &&
           ib_hca_parse(f, inst->cfg.backup_nics, why, sizeof(why)) == 0;
}

/*
 * Why @nic, which nobody has named, is no backup for @primary; NULL: it is one. A NIC of another
 * network does not reach the same ports, and its own users want it. NICs of different generations
 * in one host share what is to be sent by their rates; one that is more than two generations behind
 * (400 and 25 Gb/s) is there for storage or management, and would add less than its traffic costs
 * those.
 */
static const char *unlike(struct r2_inst *inst, const struct ib_nic *primary,
                          const struct ib_nic *nic)
{
    struct ib_hca_filter f;
    struct ib_addr a, b;

    if (nic == primary || nic->last || primary->last || has_list(inst, &f) || is_named(inst)) {
        return NULL;
    }
    ib_nic_addr_get(&inst->nics, primary->index, &a);
    ib_nic_addr_get(&inst->nics, nic->index, &b);
    if (a.link_layer && b.link_layer && a.link_layer != b.link_layer) {
        return "the one is InfiniBand, the other Ethernet";
    }
    return nic->speed_mbps > 0 && (int64_t)nic->speed_mbps * CLASS_MOST < primary->speed_mbps
               ? "slower than a quarter of it"
               : NULL;
}

bool r2_setup_is_last(struct r2_inst *inst, int dev, int nic)
{
    const struct ib_nic *n = &inst->nics.nic[nic];

    return n->last ||
           (inst->cfg.last_resort[0] != '\0' && strcmp(inst->cfg.last_resort, "off") != 0 &&
            n->rail >= 0 && n->rail < IB_LAST_RAILS && unlike(inst, &inst->nics.nic[dev], n));
}

/* Nobody has put the backups in order: those that are up come first, among them what the topology
 * says. */
static uint8_t preference_of(const struct r2_inst *inst, int dev, const struct ib_nic *nic)
{
    uint8_t near = r2_balance_preference(inst, dev, nic->index);

    return (uint8_t)(near + (ib_nic_state_get(nic) == IB_NIC_UP ? UP_MORE : 0));
}

/* 0: no backup of NIC @dev. Else the earlier in NCCL_R2_BACKUP_NICS, the more. */
static uint8_t backup_preference(struct r2_inst *inst, int dev, const struct ib_nic *nic, bool last)
{
    const struct ib_nic *primary = &inst->nics.nic[dev];
    const char *left_out = unlike(inst, primary, nic);
    struct ib_hca_filter f;
    int rank;

    if (left_out && !(inst->logged.left_out >> nic->index & 1)) {
        inst->logged.left_out |= 1u << nic->index;
        R2_INFO(
            "NIC %s (%d Mb/s) is %s of %s (%d Mb/s): %s; NCCL_R2_BACKUP_NICS or NCCL_IB_HCA may name it",
            nic->name, nic->speed_mbps, last ? "but the last resort" : "no backup", primary->name,
            primary->speed_mbps, left_out);
    }
    if (left_out || last) {
        return last;
    }
    if (!has_list(inst, &f)) {
        return preference_of(inst, dev, nic);
    }
    if (!ib_hca_match(&f, nic->dev_name, nic->port, NULL)) {
        return 0;
    }
    if (f.exclude) {
        return preference_of(inst, dev, nic);
    }
    rank = ib_hca_rank(&f, nic->dev_name, nic->port);
    return (uint8_t)(rank < 0 ? 1 : 255 - rank);
}

/* A list may name NICs that other hosts have, but one of its names is a NIC of this process. Else
 * it is a misprint, or NCCL_IB_HCA leaves those out, and the job would go without backups. */
static void list_check(struct r2_inst *inst)
{
    struct ib_hca_filter f;

    if (inst->logged.backups || !has_list(inst, &f) || f.exclude) {
        return;
    }
    inst->logged.backups = 1;
    for (int i = 0; i < inst->nics.count; i++) {
        const struct ib_nic *nic = &inst->nics.nic[i];

        if (!nic->last && ib_hca_match(&f, nic->dev_name, nic->port, NULL)) {
            return;
        }
    }
    R2_WARN("NCCL_R2_BACKUP_NICS=%s names no NIC that this process uses (NCCL_IB_HCA=%s): none of "
            "these is a backup",
            inst->cfg.backup_nics, inst->cfg.ib_hca);
}

int r2_setup_nics(struct r2_inst *inst, int dev, struct fo_nic out[IB_MAX_NICS])
{
    list_check(inst);
    for (int i = 0; i < inst->nics.count; i++) {
        const struct ib_nic *nic = &inst->nics.nic[i];
        enum ib_nic_state s = ib_nic_state_get(nic);
        bool last = r2_setup_is_last(inst, dev, i);

        memset(&out[i], 0, sizeof(out[i]));
        snprintf(out[i].name, sizeof(out[i].name), "%.*s", FO_NIC_NAME - 1, nic->name);
        out[i].rail = (int16_t)(nic->last ? nic->rail
                                : last    ? IB_LAST_RAIL_RDMA + nic->rail
                                          : nic->rail % IB_LAST_RAIL_RDMA);
        out[i].usable =
            s == IB_NIC_UP || s == IB_NIC_DOWN ? backup_preference(inst, dev, nic, last) : 0;
        out[i].gen = atomic_load_explicit(&nic->generation, memory_order_relaxed);
    }
    return inst->nics.count;
}
