#include "r2_way_notified.h"

#include <stdbool.h>
#include <string.h>

#include "base/r2_log.h"
#include "core/r2_notify.h"
#include "core/r2_registry.h"
#include "core/r2_visit.h"
#include "r2_pair.h"
#include "r2_watch.h"

#define KEPT_NS PROBE_WAY_AVOID_NS /* who has heard it then has left the way for so long */

static bool same_ports(const struct r2_pair *pair, int nic, const uint8_t gid[16])
{
    return pair->peer && pair->nic == nic && pair->ways.n > 1 &&
           memcmp(pair->far.addr.port.gid, gid, 16) == 0;
}

/* --- what was heard lately, of pairs that are yet to come, too --- */

static void keep(struct r2_inst *inst, int nic, const uint8_t gid[16], uint32_t label,
                 uint64_t since)
{
    struct r2_way_heard *row = inst->probing.heard, *at = &row[0];

    for (int i = 0; i < R2_WAYS_HEARD; i++) {
        if (row[i].at && row[i].nic == nic && row[i].label == label &&
            memcmp(row[i].gid, gid, sizeof(row[i].gid)) == 0) {
            at = &row[i];
            break;
        }
        at = row[i].at < at->at ? &row[i] : at;
    }
    *at = (struct r2_way_heard){
        .at = inst->watch.clock + 1, .since = since, .label = label, .nic = (uint8_t)nic};
    memcpy(at->gid, gid, sizeof(at->gid));
}

/* --- what follows --- */

/* Gate held. */
static void leave_path(struct r2_comm *c, int p, const struct r2_pair *pair, uint64_t since)
{
    struct ib_fault_info info = {.fault = IB_FAULT_WAY};
    uint64_t late = R2_MS(pair->inst->cfg.t_suspect_ms);

    if (r2_watch_is_watched(c) && c->fo.error == R2_OK && !c->fo.bye.peer &&
        ib_conn_up(&c->conn, p) && r2_tail_may_end(c, p) &&
        probe_way_is_left(since, c->watch->path[p].went_at, late)) {
        fo_fault(&c->fo, p, &info);
    }
}

/* Paths over @pair that take way @way take another one, where there is a better one. */
static void leave(struct r2_pair *pair, unsigned way, uint64_t since)
{
    for (struct r2_comm *c = r2_ways_has_good(pair) ? pair->peer->comms : NULL; c;
         c = c->list.peer_next) {
        if (!r2_watch_is_watched(c)) {
            continue;
        }
        r2_comm_visit(c);
        for (int p = 0; p < c->conn.npaths; p++) {
            const struct ib_path *path = &c->conn.path[p];

            if (path->nic == pair->nic && path->peer_nic == pair->peer_nic && path->way == way) {
                leave_path(c, p, pair, since);
            }
        }
        r2_comm_unvisit(c);
    }
}

/* Whether @pair has a way of that label, and it was not known to be silent. */
static bool take(struct r2_pair *pair, uint32_t label, uint64_t since)
{
    unsigned way = r2_ways_find(pair, label);
    uint64_t answered = 0;

    for (int i = 0; i < PROBE_QP_LANES; i++) {
        const struct probe_lane *l = &pair->qp.lane[i];

        answered = l->way == way && l->answered > answered ? l->answered : answered;
    }
    if (!probe_ways_on_notified(&pair->ways.known, way, since, answered, pair->inst->watch.clock)) {
        return false;
    }
    leave(pair, way, since);
    return true;
}

/* The first of those between these two ports to which it is new; NULL: it is known to all. */
static struct r2_pair *take_all(struct r2_inst *inst, int nic, const uint8_t gid[16],
                                uint32_t label, uint64_t since)
{
    struct r2_pair *first = NULL;

    for (struct r2_pair *pair = inst->index.pairs; pair; pair = pair->next) {
        if (same_ports(pair, nic, gid) && take(pair, label, since) && first == NULL) {
            first = pair;
        }
    }
    return first;
}

/* --- saying --- */

static void on_way(struct r2_pair *found, unsigned way, unsigned good, uint64_t ns)
{
    struct r2_inst *inst = found->inst;
    const uint8_t *gid = found->far.addr.port.gid;
    uint64_t since = r2_elapsed(inst->watch.clock, ns);
    uint32_t label = r2_ways_label(found, way);

    keep(inst, found->nic, gid, label, since);
    leave(found, way, since);
    take_all(inst, found->nic, gid, label, since);
    for (struct r2_pair *pair = inst->index.pairs; pair; pair = pair->next) {
        union fo_body b = {.way = {.nic = pair->nic,
                                   .peer_nic = pair->peer_nic,
                                   .way = (uint8_t)r2_ways_find(pair, label),
                                   .age_ms = (uint32_t)(ns / R2_MS(1))}};

        if (same_ports(pair, found->nic, gid) && b.way.way) {
            r2_peer_emit(inst, pair->peer, FO_MSG_WAY, &b);
        }
    }
}

const struct r2_subscriber r2_way_notified_subscriber = {.on_way = on_way};

/* --- hearing --- */

static void heard(struct r2_inst *inst, int nic, const uint8_t gid[16], uint32_t label, uint64_t ns,
                  enum r2_report_from from, const char *who)
{
    uint64_t since = r2_elapsed(inst->watch.clock, ns);
    struct r2_pair *pair;

    keep(inst, nic, gid, label, since);
    pair = take_all(inst, nic, gid, label, since);
    if (pair) {
        unsigned way = r2_ways_find(pair, label);

        R2_INFO("news from %s: NIC %s - NIC %u of %s: way %u is silent", who,
                inst->nics.nic[nic].name, pair->peer_nic, inst->oob->ops->peer_str(pair->peer->oob),
                way);
        R2_NOTIFY(inst, on_way_notified, pair, way, ns, from, who);
    }
}

void r2_way_notified_on_record(struct r2_inst *inst, struct r2_peer *peer, const struct fo_way *m)
{
    const struct r2_pair *pair =
        m->peer_nic < inst->nics.count ? r2_pair_find(inst, peer, m->peer_nic, m->nic) : NULL;
    uint8_t gid[16];

    if (pair == NULL || m->way > pair->ways.n) {
        return; /* not known here, or the peer counts otherwise */
    }
    memcpy(gid, pair->far.addr.port.gid, sizeof(gid));
    heard(inst, pair->nic, gid, r2_ways_label(pair, m->way), R2_MS((uint64_t)m->age_ms),
          R2_REPORT_PEER, peer->host[0] ? peer->host : inst->oob->ops->peer_str(peer->oob));
}

void r2_way_notified_heard(struct r2_inst *inst, int nic, const uint8_t gid[16], uint32_t label,
                           uint64_t ns, const char *who)
{
    heard(inst, nic, gid, label, ns, R2_REPORT_HOST, who);
}

void r2_way_notified_join(struct r2_pair *pair)
{
    struct r2_inst *inst = pair->inst;

    for (int i = 0; i < R2_WAYS_HEARD; i++) {
        const struct r2_way_heard *row = &inst->probing.heard[i];

        if (row->at && r2_elapsed(inst->watch.clock, row->at) < KEPT_NS &&
            same_ports(pair, row->nic, row->gid)) {
            take(pair, row->label, row->since);
        }
    }
}
