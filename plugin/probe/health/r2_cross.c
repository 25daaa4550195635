#include "r2_cross.h"

#include <string.h>

#include "base/r2_log.h"
#include "core/r2_registry.h"
#include "oob/oob_wire.h"
#include "r2_pair.h"
#include "r2_pair_int.h"

/* Row: from. The others are made where the first one has answered. */
void r2_cross_move(struct r2_peer *peer, enum r2_cross_state to)
{
    static const char *const names[R2_CROSS_STATES] = {"none", "first", "all"};
    static const unsigned char legal[R2_CROSS_STATES][R2_CROSS_STATES] = {
        [R2_CROSS_NONE] = {[R2_CROSS_FIRST] = 1},
        [R2_CROSS_FIRST] = {[R2_CROSS_ALL] = 1},
    };

    if (!legal[peer->crossed][to]) {
        R2_WARN("cross pairs to %s cannot go from %s to %s", peer->host, names[peer->crossed],
                names[to]);
        return;
    }
    R2_TRACE("cross pairs to %s: %s -> %s", peer->host, names[peer->crossed], names[to]);
    peer->crossed = (uint8_t)to;
}

int r2_cross_carries(const struct r2_pair *pair)
{
    for (struct r2_comm *c = pair->peer ? pair->peer->comms : NULL; c; c = c->list.peer_next) {
        for (int p = 0; p < c->conn.npaths; p++) {
            if (c->conn.path[p].nic == pair->nic && c->conn.path[p].peer_nic == pair->peer_nic) {
                return 1;
            }
        }
    }
    return 0;
}

int r2_cross_hopeless(const struct r2_pair *pair)
{
    return r2_pair_failed(pair) && pair->probe.answers == 0 && !r2_cross_carries(pair);
}

/* The two ends would make different ones: the one whose process has the smaller identity does. */
static int ours_to_make(const struct r2_inst *inst, const struct r2_peer *peer)
{
    struct r2_oob_name self;

    inst->oob->ops->name_get(inst->oob, &self);
    return oob_uuid_compare(self.uuid, inst->oob->ops->peer_uuid(peer->oob)) < 0;
}

void r2_cross_want(struct r2_comm *c)
{
    struct r2_peer *peer = c->peer;
    const struct ib_path *a = NULL;

    if (peer->crossed != R2_CROSS_NONE || strcmp(peer->host, c->inst->self.host) == 0 ||
        !ours_to_make(c->inst, peer)) {
        return;
    }
    for (int p = 0; p < c->conn.npaths; p++) {
        const struct ib_path *b = &c->conn.path[p];

        if (!(ib_conn_rdma(&c->conn) >> p & 1)) {
            continue;
        }
        if (a && a->nic != b->nic && a->peer_nic != b->peer_nic) {
            if (r2_pair_meet(c->inst, peer, a->nic, b->peer_nic, 1)) {
                r2_cross_move(peer, R2_CROSS_FIRST);
            }
            return;
        }
        a = a ? a : b;
    }
}

/* Each NIC of ours with the next rail's of theirs: one auxiliary port for each NIC at both ends. */
static void make_others(struct r2_inst *inst, struct r2_peer *peer)
{
    uint8_t their[IB_MAX_NICS];
    uint32_t ours = 0, theirs = 0;
    int first = -1, last = -1;

    for (const struct r2_pair *pair = peer->pairs; pair; pair = pair->peer_next) {
        if (!(ours >> pair->nic & 1) && !(theirs >> pair->peer_nic & 1) &&
            !inst->nics.nic[pair->nic].last && r2_cross_carries(pair)) {
            ours |= 1u << pair->nic;
            theirs |= 1u << pair->peer_nic;
            their[pair->nic] = pair->peer_nic;
        }
    }
    for (uint32_t m = ours; m; m &= m - 1) {
        int nic = __builtin_ctz(m);

        if (last >= 0) {
            r2_pair_meet(inst, peer, last, their[nic], 1);
        }
        first = first < 0 ? nic : first;
        last = nic;
    }
    if (last != first) {
        r2_pair_meet(inst, peer, last, their[first], 1);
    }
}

void r2_cross_answered(struct r2_pair *pair, int first)
{
    struct r2_peer *peer = pair->peer;

    if (!first || peer == NULL) {
        return;
    }
    if (!r2_cross_carries(pair)) {
        if (peer->crossed == R2_CROSS_FIRST) {
            r2_cross_move(peer, R2_CROSS_ALL);
            make_others(pair->inst, peer);
        }
        return;
    }
    for (struct r2_pair *x = peer->pairs; x; x = x->peer_next) {
        if (x != pair && (x->nic == pair->nic || x->peer_nic == pair->peer_nic) &&
            r2_pair_failed(x) && x->probe.answers && !r2_cross_carries(x)) {
            r2_pair_again(x);
        }
    }
}
