#include "r2_witness.h"

#include "core/r2_visit.h"
#include "r2_pair.h"
#include "r2_watch.h"

#define CONNECTIONS 64 /* that are looked at: more of them take no other ways */

static bool goes_over(const struct r2_comm *c, int p, const struct r2_pair *pair)
{
    return c->conn.path[p].nic == pair->nic && c->conn.path[p].peer_nic == pair->peer_nic;
}

/* Takes what has completed on path @p. Gate held. */
static void progress(struct r2_comm *c, int p)
{
    if (c->is_send) {
        ib_send_progress(c->tx);
    } else {
        ib_recv_confirm(c->rx, p);
    }
}

static bool is_open(const struct r2_comm *c)
{
    return r2_watch_is_watched(c) && c->fo.error == R2_OK && !c->fo.bye.peer;
}

/* Without the gate as of a moment ago. */
static bool may_be_asked(const struct r2_comm *c, int p)
{
    return IB_RLX_GET(c->conn.up) >> p & 1 && r2_watch_others(c, ib_conn_pair(&c->conn, p)) != 0;
}

/* Gate held. Whether it was asked. */
static bool ask(struct r2_comm *c, int p)
{
    struct ib_path *path = &c->conn.path[p];
    uint64_t wrs = path->count.wrs;

    if (!is_open(c) || !may_be_asked(c, p)) {
        return false;
    }
    if (c->is_send) {
        ib_send_tail_probe(c->tx, path);
    } else {
        ib_recv_tail_probe(c->rx, p);
    }
    if (path->count.wrs == wrs || !ib_conn_up(&c->conn, p)) {
        return false; /* no room, or its queue pair took nothing */
    }
    c->watch->witness[p] = path->count.wrs;
    ib_conn_touch(&c->conn, p);
    return true;
}

/* What was asked for an earlier probe says nothing of this one. */
static void forget(struct r2_pair *pair)
{
    for (struct r2_comm *c = pair->peer->comms; c; c = c->list.peer_next) {
        for (int p = 0; r2_watch_is_watched(c) && p < c->conn.npaths; p++) {
            if (goes_over(c, p, pair)) {
                c->watch->witness[p] = 0;
            }
        }
    }
}

void r2_witness_ask(struct r2_pair *pair)
{
    uint32_t asked = 0;
    int n = 0;

    forget(pair);
    for (int l = 0; l < PROBE_QP_LANES; l++) {
        asked |= 1u << pair->qp.lane[l].way;
    }
    for (struct r2_comm *c = pair->peer->comms; c && n < CONNECTIONS; c = c->list.peer_next, n++) {
        if (!r2_watch_is_watched(c)) {
            continue;
        }
        for (int p = 0; p < c->conn.npaths; p++) {
            unsigned way = c->conn.path[p].way;

            if (!goes_over(c, p, pair) || way == 0 || way > IB_WAYS_MAX || (asked >> way & 1) ||
                !may_be_asked(c, p)) {
                continue;
            }
            r2_comm_visit(c);
            asked |= ask(c, p) ? 1u << way : 0;
            r2_comm_unvisit(c);
        }
    }
}

unsigned r2_witness_answer(struct r2_pair *pair)
{
    for (struct r2_comm *c = pair->peer->comms; c; c = c->list.peer_next) {
        for (int p = 0; r2_watch_is_watched(c) && p < c->conn.npaths; p++) {
            const struct ib_path *path = &c->conn.path[p];
            bool answers;

            if (c->watch->witness[p] == 0 || !goes_over(c, p, pair)) {
                continue;
            }
            r2_comm_visit(c);
            if (is_open(c) && ib_conn_up(&c->conn, p)) {
                progress(c, p); /* what fails ends the incarnation */
            }
            /* in order: it itself has completed. What was posted before it may have crossed before
             * the NIC died, and stood in a queue since */
            answers =
                ib_conn_up(&c->conn, p) && path->count.wrs - path->sq.used >= c->watch->witness[p];
            r2_comm_unvisit(c);
            if (answers) {
                return path->way;
            }
        }
    }
    return 0;
}
