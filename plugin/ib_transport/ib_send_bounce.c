/*
 * Sending by way of a bounce buffer (docs/balance.md). For the protocol a part that is being
 * copied is posted: it is live on this incarnation of this path, holds its slots, and when the
 * incarnation ends it is settled as what a NIC had not sent yet. Only what reads which memory
 * differs, and that is this file.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "base/r2_log.h"
#include "base/r2_rules.h"
#include "ib_send_int.h"

static int lane_is_live(const struct ib_send *tx, const struct ib_bounce_lane *lane, int p)
{
    return lane && !lane->closing && !lane->broken && lane->inc == tx->conn->path[p].inc;
}

/* The lane that new parts of path @p may take, asked for if it has none; NULL: none now. */
static struct ib_bounce_lane *lane_take(struct ib_send *tx, int p)
{
    struct ib_relay *relay = &tx->conn->relay;
    struct ib_bounce_lane *lane = tx->lane[p];

    if (lane == NULL && !tx->posting_stopped && (lane = relay->lane_get(relay->arg, p)) != NULL) {
        lane->inc = tx->conn->path[p].inc;
        tx->lane[p] = lane;
        tx->lanes |= (uint8_t)(1u << p);
        tx->pending |= IB_SEND_BOUNCE; /* it goes back when it is idle */
    }
    return lane_is_live(tx, lane, p) && !lane->leaving ? lane : NULL;
}

int ib_send_bounce_takes(struct ib_send *tx, const struct ib_smsg *m, int p)
{
    if (!(tx->conn->relay.paths >> p & 1) || m->mr->type == IB_PTR_HOST) {
        return 0;
    }
    for (unsigned k = 0; k < m->nparts; k++) {
        if (m->part[k].len > tx->conn->relay.ring) {
            return 0;
        }
    }
    return lane_take(tx, p) != NULL;
}

/* --- copying --- */

/* The path goes on without the lane in its next incarnation. @lost: what the engine reads is given
 * back to nobody. */
static __attribute__((noinline, cold)) void lane_break(struct ib_send *tx, int p, int err, int lost)
{
    struct ib_bounce_lane *lane = tx->lane[p];

    lane->broken = 1;
    lane->lost = lost != 0;
    ib_bounce_stop(&lane->ring);
    R2_WARN("path %d: the copy engine of its bounce buffer fails: %s; %u copies run%s", p,
            strerror(err), lane->ring.reading, lost ? ", and it does not say when they end" : "");
    if (lost) {
        tx->conn->sink.lost(tx->conn->sink.arg,
                            "a copy engine reads buffers of it and does not say when it has ended");
    } else if (ib_conn_up(tx->conn, p)) {
        ib_conn_call_fault(tx->conn, p, err);
    }
}

int ib_send_bounce_begin(struct ib_send *tx, struct ib_smsg *m, unsigned k, struct ib_path *p)
{
    struct ib_bounce_lane *lane = tx->lane[p->index];
    const struct ib_part *part = &m->part[k];
    struct ib_bounce_entry *e = ib_bounce_begin(&lane->ring, m->seq, k, part->len);
    int rc;

    if (e == NULL) {
        return 1;
    }
    rc = lane->ops->begin(lane->arg, lane->copies, ib_bounce_slot(&lane->ring, e),
                          lane->mem + e->off, m->data + part->off, part->len);
    if (rc != 0) {
        ib_bounce_copied(&lane->ring, e); /* nothing was begun */
        lane_break(tx, p->index, rc, 0);
        return -1;
    }
    ib_send_part_posted(tx, m, k, p, 1);
    m->wrs_out +=
        r2_rule(R2_RULE_BOUNCE_READ) != 0; /* the copy: it reads the message's buffer (P13) */
    tx->pending |= IB_SEND_BOUNCE;
    return 0;
}

static void copy_over(struct ib_send *tx, struct ib_bounce_lane *lane, struct ib_bounce_entry *e)
{
    struct ib_smsg *m = IB_SEND_SLOT(tx, e->seq);

    ib_bounce_copied(&lane->ring, e);
    m->wrs_out -= r2_rule(R2_RULE_BOUNCE_READ) != 0;
}

static void copies_poll(struct ib_send *tx, int p)
{
    struct ib_bounce_lane *lane = tx->lane[p];
    struct ib_bounce_entry *e;

    while (!lane->lost && (e = ib_bounce_reading(&lane->ring)) != NULL) {
        int done = lane->ops->done(lane->arg, lane->copies, ib_bounce_slot(&lane->ring, e));

        if (done == 0) {
            return;
        }
        if (done < 0) {
            lane_break(tx, p, EIO, 1);
            return;
        }
        copy_over(tx, lane, e);
    }
}

/* --- posting --- */

/* 0, or -1 when the call failed and the path is down now. */
static int post_bounced(struct ib_send *tx, struct ib_bounce_lane *lane, struct ib_path *p,
                        struct ib_bounce_entry *e)
{
    const struct ib_smsg *m = IB_SEND_SLOT(tx, e->seq);
    struct ibv_sge sge = {.addr = (uintptr_t)lane->mem + e->off,
                          .length = e->len,
                          .lkey = ib_mr_lkey(lane->mr, p->nic)};
    struct ibv_send_wr wr = {
        .wr_id = ib_wr_id(IB_WR_BOUNCE, e->k, e->seq),
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
        .send_flags = IBV_SEND_SIGNALED,
        .imm_data = htonl(ib_imm_pack(e->seq, e->k, m->nparts, IB_IMM_DATA, p->inc)),
        .wr.rdma = {.remote_addr = m->raddr + m->part[e->k].off, .rkey = m->rkey[p->index]}};
    struct ibv_send_wr *bad;
    int rc = ibv_post_send(p->qp, &wr, &bad);

    if (rc != 0) {
        ib_conn_call_fault(tx->conn, p->index, ib_verbs_err(rc));
        return -1;
    }
    ib_bounce_posted(&lane->ring, e);
    if (!r2_rule(R2_RULE_BOUNCE_RING)) {
        ib_bounce_sent(&lane->ring);
    }
    return 0;
}

/* Back to where it came from as soon as nothing uses it: there are fewer lanes than paths. */
static void lane_end(struct ib_send *tx, int p)
{
    struct ib_bounce_lane *lane = tx->lane[p];

    if (ib_bounce_idle(&lane->ring) ? !lane->soft : lane->closing && lane->lost) {
        tx->lane[p] = NULL;
        tx->lanes &= (uint8_t) ~(1u << p);
        tx->conn->relay.lane_put(tx->conn->relay.arg, p, lane);
    }
}

static void lane_turn(struct ib_send *tx, int p)
{
    struct ib_bounce_lane *lane = tx->lane[p];
    struct ib_bounce_entry *e;

    copies_poll(tx, p);
    if (!ib_conn_up(tx->conn, p) || tx->posting_stopped) {
        ib_bounce_stop(&lane->ring);
    }
    while (lane_is_live(tx, lane, p) && (e = ib_bounce_next(&lane->ring)) != NULL) {
        if (post_bounced(tx, lane, &tx->conn->path[p], e) != 0) {
            break;
        }
    }
    lane->leaving |= tx->conn->relay.lane_wanted(tx->conn->relay.arg, p) != 0;
    lane_end(tx, p);
}

void ib_send_bounce_turn(struct ib_send *tx)
{
    uint8_t active = 0;

    for (uint32_t lanes = tx->lanes; lanes; lanes &= lanes - 1) {
        int p = __builtin_ctz(lanes);

        lane_turn(tx, p);
        active |= tx->lane[p] && !tx->lane[p]->lost && !ib_bounce_idle(&tx->lane[p]->ring);
    }
    tx->pending = (uint8_t)((tx->pending & ~IB_SEND_BOUNCE) | (active ? IB_SEND_BOUNCE : 0));
}

int ib_send_bounce_waits(const struct ib_send *tx, int p, uint32_t inc, uint64_t seq, unsigned k)
{
    const struct ib_bounce_lane *lane = tx->lane[p];

    if (lane == NULL || lane->inc != inc) {
        return 0;
    }
    for (uint32_t n = lane->ring.post; n != lane->ring.last; n++) {
        const struct ib_bounce_entry *e = &lane->ring.entry[n % IB_BOUNCE_ENTRIES];

        if (e->seq == seq && e->k == k) {
            return 1;
        }
    }
    return 0;
}

void ib_send_bounce_sent(struct ib_send *tx, struct ib_path *p)
{
    if (tx->lane[p->index]) {
        ib_bounce_sent(&tx->lane[p->index]->ring);
    }
}

/* --- incarnations --- */

void ib_send_bounce_plan(struct ib_send *tx)
{
    struct ib_conn *l = tx->conn;

    for (uint32_t paths = l->relay.paths; paths; paths &= paths - 1) {
        l->path[__builtin_ctz(paths)].part.one_max =
            0; /* no part passes the data path's comparison */
    }
    for (uint32_t lanes = tx->lanes; lanes; lanes &= lanes - 1) {
        int p = __builtin_ctz(lanes);

        if (!ib_conn_up(l, p)) {
            ib_bounce_stop(&tx->lane[p]->ring);
        }
    }
}

static void incarnation_over(struct ib_send *tx, int p)
{
    struct ib_bounce_lane *lane = tx->lane[p];

    lane->soft = 0;
    lane->closing = 1;
    ib_bounce_closed(&lane->ring);
    tx->pending |= IB_SEND_BOUNCE; /* copies may run still: who looks gives the lane back */
}

void ib_send_bounce_incarnation_closed(struct ib_send *tx, int p, uint32_t inc, int soft)
{
    struct ib_bounce_lane *lane = tx->lane[p];

    if (lane == NULL || lane->inc != inc || lane->closing) {
        return;
    }
    ib_bounce_stop(&lane->ring);
    lane->soft = soft != 0;
    if (!soft) {
        incarnation_over(tx, p);
    }
}

void ib_send_bounce_soft_over(struct ib_send *tx, int p)
{
    if (tx->lane[p] && tx->lane[p]->soft) {
        incarnation_over(tx, p);
    }
}

int ib_send_bounce_reads(struct ib_send *tx, const struct ib_mr *mr)
{
    for (uint32_t lanes = tx->lanes; lanes; lanes &= lanes - 1) {
        int p = __builtin_ctz(lanes);
        const struct ib_bounce *st = &tx->lane[p]->ring;

        copies_poll(tx, p);
        for (uint32_t n = st->first; st->reading && !tx->lane[p]->lost && n != st->last; n++) {
            const struct ib_bounce_entry *e = &st->entry[n % IB_BOUNCE_ENTRIES];

            if (e->reads && IB_SEND_SLOT(tx, e->seq)->mr == mr) {
                return 1;
            }
        }
    }
    return 0;
}

int ib_send_bounce_end(struct ib_send *tx, int late)
{
    tx->posting_stopped = 1;
    for (uint32_t lanes = tx->lanes; lanes; lanes &= lanes - 1) {
        int p = __builtin_ctz(lanes);

        incarnation_over(tx, p);
        copies_poll(tx, p);
        /* what RC repeats of a queue pair that goes on is read from there (P12) */
        tx->lane[p]->lost |=
            (uint8_t)((late && tx->lane[p]->ring.reading != 0) || tx->conn->path[p].goes_on);
    }
    ib_send_bounce_turn(tx);
    return tx->lanes == 0;
}
