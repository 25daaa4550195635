#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/r2_log.h"
#include "base/r2_time.h"
#include "ib_ack_flush.h"

#define POLL_BATCH 16
#define RETRY_NS   R2_MS(100) /* a lane is not built again more often than this */
#define LIMIT_FENCES                                                                               \
    10 /* a read that is not back after so many T_fence: the NIC does not read any more */

static const char *nic_name(const struct ib_flush *f, const struct ib_lane *l)
{
    return f->conn->nics->nic[l->nic].name;
}

static uint64_t pcie_ns(const struct ib_flush *f)
{
    return R2_MS(f->conn->cfg->t_pcie_ms);
}

static int lane_index(const struct ib_flush *f, const struct ib_lane *l)
{
    return (int)(l - f->lane);
}

static int lane_state(const struct ib_lane *l)
{
    return atomic_load_explicit(&l->state,
                                memory_order_acquire); /* pairs with build and rebuild_done */
}

/* The only writer of the state; release, pairs with lane_state. Row: from. */
static void lane_move(const struct ib_flush *f, struct ib_lane *l, enum ib_lane_state to)
{
    static const char *const names[IB_LANE_STATES] = {"none", "ready", "broken", "building"};
    static const unsigned char legal[IB_LANE_STATES][IB_LANE_STATES] = {
        [IB_LANE_NONE] = {[IB_LANE_READY] = 1},
        [IB_LANE_READY] = {[IB_LANE_BROKEN] = 1},
        [IB_LANE_BROKEN] = {[IB_LANE_BUILDING] = 1},
        [IB_LANE_BUILDING] = {[IB_LANE_READY] = 1, [IB_LANE_BROKEN] = 1},
    };
    int from = atomic_load_explicit(&l->state, memory_order_relaxed); /* nobody else writes now */

    if (!legal[from][to]) {
        R2_WARN("flush lane of NIC %s cannot go from %s to %s", nic_name(f, l), names[from],
                names[to]);
        return;
    }
    atomic_store_explicit(&l->state, (int)to, memory_order_release);
}

static int lane_usable(const struct ib_flush *f, const struct ib_lane *l)
{
    return lane_state(l) == IB_LANE_READY &&
           ib_nic_state_get(&f->conn->nics->nic[l->nic]) == IB_NIC_UP;
}

/* --- set-up --- */

static int reaches_gpus(const struct ib_nic *nic)
{
    return (nic->ptr_support & (IB_PTR_CUDA | IB_PTR_DMABUF)) != 0;
}

/* A NIC of last resort has of memory of GPUs what others have: NCCL decides by the host's NIC that
 * it was shown, over which a connection to a host without any has no path. */
static int nic_wants(const struct ib_conn *l, int p)
{
    const struct ib_nics *nics = l->nics;
    const struct ib_nic *nic = &nics->nic[l->path[p].nic];
    int wants = l->cfg->flush == R2_FLUSH_ALWAYS || reaches_gpus(nic);

    for (int i = 0; nic->last && i < nics->count; i++) {
        wants |= reaches_gpus(&nics->nic[i]);
    }
    return wants;
}

int ib_flush_wanted(const struct ib_conn *l)
{
    for (int p = 0; p < l->npaths; p++) {
        if (nic_wants(l, p)) {
            return 1;
        }
    }
    return 0;
}

struct ib_flush *ib_flush_create(struct ib_conn *l, struct ib_workers *workers,
                                 void (*notify)(void *arg), void *arg)
{
    struct ib_flush *f = calloc(1, sizeof(*f));

    if (f == NULL) {
        return NULL;
    }
    f->conn = l;
    f->workers = workers;
    f->notify = notify;
    f->notify_arg = arg;
    f->always = l->cfg->flush == R2_FLUSH_ALWAYS;
    if (l->cfg->ack == R2_ACK_FLUSH && (f->ack = calloc(1, sizeof(*f->ack))) == NULL) {
        free(f);
        return NULL;
    }
    for (int p = 0; p < l->npaths; p++) {
        int first = 0;

        while (l->path[first].nic != l->path[p].nic) {
            first++;
        }
        f->lane_of[p] = (uint8_t)first;
        f->lane[p].flush = f;
        f->lane[p].nic = l->path[p].nic;
    }
    for (int i = 0; i < IB_FLUSH_OPS; i++) {
        f->free_list[f->free_count++] = (uint16_t)(IB_FLUSH_OPS - 1 - i);
    }
    return f;
}

int ib_flush_build(struct ib_flush *f, int p)
{
    struct ib_lane *l = &f->lane[f->lane_of[p]];

    if (!nic_wants(f->conn, p) ||
        atomic_load_explicit(&l->state, memory_order_relaxed) != IB_LANE_NONE) {
        return 0; /* jobs of one device run one after the other: who built it is through */
    }
    l->rc = ib_lane_make(f, l);
    if (l->rc == 0) {
        lane_move(f, l, IB_LANE_READY);
        return 0;
    }
    ib_lane_unmake(f, l, 0);
    /* relaxed: nothing else is read by it. What is not able yet has given S no key for memory of a
     * GPU, and when it becomes so ib_flush.none has this path */
    return f->ack && atomic_load_explicit(&f->able, memory_order_relaxed) ? l->rc : 0;
}

void ib_flush_open(struct ib_flush *f, unsigned up)
{
    for (int p = 0; p < f->conn->npaths; p++) {
        struct ib_lane *l = &f->lane[f->lane_of[p]];

        if (!(up >> p & 1)) {
            continue;
        }
        f->able |= lane_state(l) == IB_LANE_READY;
        if (lane_state(l) != IB_LANE_NONE) {
            f->none &= (uint8_t) ~(1u << p); /* a broken one is mended */
            continue;
        }
        f->none |= (uint8_t)(1u << p);
        if (nic_wants(f->conn, p)) {
            R2_INFO("NIC %s cannot flush and gets no GPU memory of this connection: %s",
                    nic_name(f, l), strerror(l->rc));
        }
    }
    /* without any lane no GPU memory is registered, and host memory under NCCL_R2_FLUSH=always goes
     * on over all paths */
    f->lacks = f->able ? f->none : 0;
}

/* --- broken lanes --- */

static void rebuild_run(struct ib_job *job)
{
    struct ib_lane *l = (struct ib_lane *)job;

    ib_lane_unmake(l->flush, l, 1);
    l->rc = ib_lane_make(l->flush, l);
}

static void rebuild_done(struct ib_job *job)
{
    struct ib_lane *l = (struct ib_lane *)job;

    if (l->rc == 0) {
        R2_INFO("flush lane of NIC %s is built again", nic_name(l->flush, l));
    }
    /* from here the gate holder may submit the job again */
    lane_move(l->flush, l, l->rc == 0 ? IB_LANE_READY : IB_LANE_BROKEN);
}

/* Only where the NIC still carries traffic: a lane of a dead one would keep the worker that has to
 * fence it. With no path left every NIC may be worth it: a peer that has closed needs none any
 * more, what it sent has to be flushed all the same. */
static int worth_building(const struct ib_flush *f, const struct ib_lane *l)
{
    if (ib_nic_state_get(&f->conn->nics->nic[l->nic]) != IB_NIC_UP) {
        return 0;
    }
    for (int p = 0; p < f->conn->npaths; p++) {
        if (f->conn->path[p].nic == l->nic && ib_conn_up(f->conn, p)) {
            return 1;
        }
    }
    return f->conn->up == 0;
}

static void mend_lanes(struct ib_flush *f, uint64_t now)
{
    for (int i = 0; i < f->conn->npaths; i++) {
        struct ib_lane *l = &f->lane[i];
        int state;

        if (!(f->broken >> i & 1)) {
            continue;
        }
        state = lane_state(l);
        if (state == IB_LANE_READY) {
            f->broken &= (uint8_t) ~(1u << i);
            f->rebuilt++;
        } else if (state == IB_LANE_BROKEN && now >= l->retry_at && worth_building(f, l)) {
            l->retry_at = now + RETRY_NS;
            l->job.run = rebuild_run;
            l->job.done = rebuild_done;
            lane_move(f, l, IB_LANE_BUILDING);
            ib_workers_submit(f->workers, f->conn->nics->nic[l->nic].device_index, &l->job);
        }
    }
}

/* What the lane owed any flush is owed by another NIC; time counts from the begin of the flush,
 * when all data had crossed the link. */
static __attribute__((noinline, cold)) void lane_break(struct ib_flush *f, struct ib_lane *l,
                                                       uint64_t now, const char *why)
{
    int i = lane_index(f, l);

    R2_INFO("flush lane of NIC %s broke: %s", nic_name(f, l), why);
    lane_move(f, l, IB_LANE_BROKEN);
    f->broken |= (uint8_t)(1u << i);
    l->used = 0;
    ib_ack_flush_broken(f, i);
    for (int k = 0; k < IB_FLUSH_OPS; k++) {
        struct ib_flush_op *op = &f->op[k];
        uint8_t owed = op->todo[i] | op->out[i];

        if (!op->used || !owed) {
            continue;
        }
        op->todo[i] = op->out[i] = 0;
        op->lost |= owed;
        op->tried |= (uint8_t)(1u << i);
        if (op->lost_at < op->since + pcie_ns(f)) {
            op->lost_at = op->since + pcie_ns(f);
        }
    }
    mend_lanes(f, now);
}

/* --- reads --- */

static void post_todo(struct ib_flush *f, struct ib_flush_op *op, int i, uint64_t now)
{
    struct ib_lane *l = &f->lane[i];
    int rc;

    while (op->todo[i] && l->used < IB_LANE_DEPTH) {
        unsigned m = (unsigned)__builtin_ctz(op->todo[i]);
        uint64_t value = (uint64_t)op->generation << 16 | (uint64_t)(op - f->op);

        rc = ib_lane_read(l, op->data[m], ib_mr_rkey(op->mr[m], l->nic),
                          ib_wr_id(IB_WR_FLUSH, m, value));
        if (rc != 0) {
            lane_break(f, l, now, strerror(rc));
            return;
        }
        l->moved_at = l->used++ ? l->moved_at : now;
        op->todo[i] &= (uint8_t) ~(1u << m);
        op->out[i] |= (uint8_t)(1u << m);
        f->reads++;
    }
}

static bool is_bug(enum ibv_wc_status s)
{
    return s == IBV_WC_REM_ACCESS_ERR || s == IBV_WC_LOC_PROT_ERR || s == IBV_WC_LOC_LEN_ERR ||
           s == IBV_WC_REM_INV_REQ_ERR;
}

/* 0: the lane broke. */
static int completion(struct ib_flush *f, struct ib_lane *l, const struct ibv_wc *wc, uint64_t now)
{
    uint64_t value = ib_wr_value(wc->wr_id);
    struct ib_flush_op *op = &f->op[value % IB_FLUSH_OPS];
    uint8_t bit = (uint8_t)(1u << ib_wr_part(wc->wr_id));
    int mine = ib_wr_kind(wc->wr_id) == IB_WR_FLUSH && op->used &&
               op->generation == (uint16_t)(value >> 16);

    if (wc->status != IBV_WC_SUCCESS) {
        op->bugs = (uint8_t)(op->bugs + (mine && is_bug(wc->status)));
        lane_break(f, l, now, f->conn->nics->v->wc_status_str(wc->status));
        return 0;
    }
    l->used--;
    l->moved_at = now;
    if (ib_wr_kind(wc->wr_id) == IB_WR_ACK_FLUSH) {
        ib_ack_flush_back(f, (int)ib_wr_part(wc->wr_id), (uint32_t)value, now);
    } else if (mine) {
        op->out[lane_index(f, l)] &= (uint8_t)~bit;
    }
    return 1;
}

static void poll_lane(struct ib_flush *f, struct ib_lane *l, uint64_t now)
{
    struct ibv_wc wc[POLL_BATCH];
    int n;

    if (ib_nic_state_get(&f->conn->nics->nic[l->nic]) != IB_NIC_UP) {
        lane_break(f, l, now, "the NIC is not up");
        return;
    }
    do {
        n = ibv_poll_cq(l->cq, POLL_BATCH, wc);
        if (n < 0) {
            lane_break(f, l, now, "poll failed");
            return;
        }
        for (int i = 0; i < n; i++) {
            if (!completion(f, l, &wc[i], now)) {
                return;
            }
        }
    } while (n == POLL_BATCH);
    if (l->used && now - l->moved_at > R2_MS(f->conn->cfg->t_fence_ms) * LIMIT_FENCES) {
        lane_break(f, l, now, "a read does not come back");
    }
}

/* Messages of @op that @l can read. */
static uint8_t readable(const struct ib_flush_op *op, const struct ib_lane *l, uint8_t messages)
{
    uint8_t out = 0;

    for (unsigned m = 0; m < op->n; m++) {
        if ((messages >> m & 1) && ib_mr_rkey(op->mr[m], l->nic) != 0) {
            out |= (uint8_t)(1u << m);
        }
    }
    return out;
}

/* Gives what is lost to lanes that were not tried: in the first round those of NICs that carry
 * traffic. */
static void replace_round(struct ib_flush *f, struct ib_flush_op *op, int round)
{
    for (int p = 0; p < f->conn->npaths && op->lost; p++) {
        int i = f->lane_of[p];
        uint8_t take;

        if (ib_conn_up(f->conn, p) == round || (op->tried >> i & 1) ||
            !lane_usable(f, &f->lane[i])) {
            continue;
        }
        take = readable(op, &f->lane[i], op->lost);
        op->lost &= (uint8_t)~take;
        op->todo[i] |= take;
        f->replaced += (unsigned)__builtin_popcount(take);
    }
}

static void replace_lost(struct ib_flush *f, struct ib_flush_op *op)
{
    replace_round(f, op, 0);
    replace_round(f, op, 1);
    if (op->lost) {
        op->tried = 0; /* whoever failed may have been mended */
    }
}

/* --- requests --- */

int ib_flush_take(struct ib_flush *f, int n, void *const *data, const int *sizes,
                  struct ib_mr *const *mrs)
{
    struct ib_flush_op *op;
    uint16_t generation;
    int i;

    if (f->free_count == 0) {
        return -1;
    }
    i = f->free_list[--f->free_count];
    op = &f->op[i];
    generation = (uint16_t)(op->generation + 1);
    *op = (struct ib_flush_op){.used = 1, .n = (uint8_t)n, .generation = generation};
    for (int m = 0; m < n; m++) {
        op->data[m] = data[m];
        op->mr[m] = mrs[m];
        if (sizes[m] > 0 && mrs[m] && ib_flush_wants(f, mrs[m])) {
            op->want |= (uint8_t)(1u << m);
        }
    }
    return i;
}

/* Paths that the message last received at @data came over. One whose record is gone may have come
 * over any that ever carried data. */
static uint8_t came_over(const struct ib_recv *rx, const uint8_t *data)
{
    const struct r2_ledger *g = &rx->ledger;

    for (uint64_t seq = g->rdone; seq > 0 && g->rdone - seq < R2_LEDGER_WINDOW; seq--) {
        const struct ib_rmsg *m = &rx->msg[(seq - 1) % R2_LEDGER_WINDOW];

        if (m->seq == seq - 1 && m->data == data && m->from) {
            return m->from;
        }
    }
    return rx->carried;
}

void ib_flush_begin(struct ib_flush *f, const struct ib_recv *rx, int i)
{
    struct ib_flush_op *op = &f->op[i];
    uint64_t now = ib_conn_now(f->conn);

    op->begun = 1;
    op->since = now;
    for (unsigned m = 0; m < op->n; m++) {
        uint8_t bit = (uint8_t)(1u << m);

        for (unsigned from = op->want & bit ? came_over(rx, op->data[m]) : 0; from;
             from &= from - 1) {
            int p = __builtin_ctz(from);
            const struct ib_path *path = &f->conn->path[p];
            struct ib_lane *l = &f->lane[f->lane_of[p]];
            uint64_t crossed = path->open || path->closed_at == 0 ? now : path->closed_at;

            if (lane_usable(f, l) && readable(op, l, bit)) {
                op->todo[f->lane_of[p]] |= bit;
                continue;
            }
            op->lost |= bit;
            op->lost_at = crossed + pcie_ns(f) > op->lost_at ? crossed + pcie_ns(f) : op->lost_at;
        }
    }
    for (int k = 0; k < f->conn->npaths; k++) {
        post_todo(f, op, k, now);
    }
}

static int impossible(struct ib_flush *f, const struct ib_flush_op *op, uint64_t now)
{
    if (op->bugs > 1) {
        snprintf(f->why, sizeof(f->why),
                 "a flush is refused on every NIC: is the buffer registered still?");
        return 1;
    }
    if (op->lost && now - op->since >= R2_MS(f->conn->cfg->t_give_up_ms)) {
        snprintf(f->why, sizeof(f->why), "no NIC left could flush GPU memory for %lld ms",
                 (long long)f->conn->cfg->t_give_up_ms);
        return 1;
    }
    return 0;
}

static int owed(const struct ib_flush_op *op)
{
    unsigned left = op->lost;

    for (int k = 0; k < IB_MAX_PATHS; k++) {
        left |= op->todo[k] | op->out[k];
    }
    return left != 0;
}

void ib_flush_poll(struct ib_flush *f, uint64_t now)
{
    for (int k = 0; k < f->conn->npaths; k++) {
        if (f->lane[k].used) {
            poll_lane(f, &f->lane[k], now);
        }
    }
    if (f->broken) {
        mend_lanes(f, now);
    }
}

int ib_flush_read(struct ib_flush *f, int p, const void *data, struct ib_mr *mr, uint64_t wr_id)
{
    struct ib_lane *l = &f->lane[f->lane_of[p]];
    uint64_t now = ib_conn_now(f->conn);
    int rc;

    if (!lane_usable(f, l) || l->used >= IB_LANE_DEPTH) {
        return -1;
    }
    if ((rc = ib_lane_read(l, data, ib_mr_rkey(mr, l->nic), wr_id)) != 0) {
        lane_break(f, l, now, strerror(rc));
        return -1;
    }
    l->moved_at = l->used++ ? l->moved_at : now;
    f->reads++;
    return 0;
}

int ib_flush_test(struct ib_flush *f, const struct ib_recv *rx, int i)
{
    struct ib_flush_op *op = &f->op[i];
    uint64_t now;

    if (!op->begun) {
        ib_flush_begin(f, rx, i);
    }
    now = ib_conn_now(f->conn); /* behind the begin, whose times are compared with it */
    ib_flush_poll(f, now);
    if (op->lost && now >= op->lost_at) {
        replace_lost(f, op);
    }
    for (int k = 0; k < f->conn->npaths; k++) {
        post_todo(f, op, k, now);
    }
    if (!owed(op)) {
        op->used = 0;
        f->free_list[f->free_count++] = (uint16_t)i;
        return 1;
    }
    return impossible(f, op, now) ? -1 : 0;
}

/* --- end --- */

static void close_run(struct ib_job *job)
{
    struct ib_lane *l = (struct ib_lane *)job;

    ib_lane_unmake(l->flush, l, 0);
}

static void close_done(struct ib_job *job)
{
    struct ib_flush *f = ((struct ib_lane *)job)->flush;

    f->notify(f->notify_arg);
}

int ib_flush_close(struct ib_flush *f)
{
    int left = 0;

    for (int i = 0; f && i < f->conn->npaths; i++) {
        struct ib_lane *l = &f->lane[i];

        if (!l->job.busy && (l->qp || l->cq || l->mr || l->landing)) {
            l->job.run = close_run;
            l->job.done = close_done;
            ib_workers_submit(f->workers, f->conn->nics->nic[l->nic].device_index, &l->job);
        }
        left += l->job.busy != 0;
    }
    return left;
}

int ib_flush_busy(const struct ib_flush *f)
{
    for (int i = 0; f && i < IB_MAX_PATHS; i++) {
        if (f->lane[i].job.busy) {
            return 1;
        }
    }
    return 0;
}

void ib_flush_free(struct ib_flush *f)
{
    for (int i = 0; f && i < f->conn->npaths; i++) {
        ib_lane_unmake(f, &f->lane[i], 0);
    }
    if (f) {
        free(f->ack);
    }
    free(f);
}
