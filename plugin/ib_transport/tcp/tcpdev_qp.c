/* Queue pairs of the TCP device: states, what is posted, how it completes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tcpdev_int.h"

#define QPN_MASK   0xffffffu
#define BUDGET_MIN 100000000ull /* ns */

static uint32_t power_of_two(uint32_t n)
{
    uint32_t p = 1;

    while (p < n) {
        p *= 2;
    }
    return p;
}

static struct tcpdev_qp **qp_place(struct tcpdev *d, uint32_t qpn)
{
    struct tcpdev_qp **p = &d->qps[qpn % TCPDEV_BUCKETS];

    while (*p && (*p)->base.qp_num != qpn) {
        p = &(*p)->next_hash;
    }
    return p;
}

struct tcpdev_qp *tcpdev_qp_find(struct tcpdev *d, uint32_t qpn)
{
    return *qp_place(d, qpn);
}

/* --- lists --- */

static bool has_work(const struct tcpdev_qp *q)
{
    return q->sq.sent != q->sq.posted;
}

static bool next_is_urgent(const struct tcpdev_qp *q)
{
    return q->sq.ring[q->sq.sent & (q->sq.room - 1)].len <= TCPDEV_URGENT;
}

void tcpdev_qp_ready(struct tcpdev_qp *q)
{
    struct tcpdev_stream *s = q->stream;
    int list;

    if (q->is_ready || !has_work(q) || q->retry_at || q->end.stuck) {
        return;
    }
    q->is_ready = true;
    if (s == NULL) {
        q->next_ready = q->dev->orphans;
        q->dev->orphans = q;
    } else {
        list = next_is_urgent(q) ? 0 : 1;
        q->next_ready = NULL;
        *s->ready_end[list] = q;
        s->ready_end[list] = &q->next_ready;
    }
    tcpdev_wake(q->dev);
}

static void unlink_from(struct tcpdev_qp **list, struct tcpdev_qp ***end, struct tcpdev_qp *q,
                        size_t next)
{
#define NEXT(p) (*(struct tcpdev_qp **)((char *)(p) + next))
    for (struct tcpdev_qp **p = list; *p; p = &NEXT(*p)) {
        if (*p == q) {
            *p = NEXT(q);
            if (end && *end == &NEXT(q)) {
                *end = p;
            }
            return;
        }
    }
#undef NEXT
}

static void unready(struct tcpdev_qp *q)
{
    struct tcpdev_stream *s = q->stream;

    if (!q->is_ready) {
        return;
    }
    q->is_ready = false;
    if (s == NULL) {
        unlink_from(&q->dev->orphans, NULL, q, offsetof(struct tcpdev_qp, next_ready));
        return;
    }
    for (int i = 0; i < 2; i++) {
        unlink_from(&s->ready[i], &s->ready_end[i], q, offsetof(struct tcpdev_qp, next_ready));
    }
}

static void unack(struct tcpdev_qp *q)
{
    if (q->ack.due && q->asker) {
        unlink_from(&q->asker->acks, &q->asker->acks_end, q, offsetof(struct tcpdev_qp, next_ack));
    }
    q->ack.due = false;
    q->asker = NULL;
}

void tcpdev_qp_active(struct tcpdev_qp *q, bool on)
{
    struct tcpdev *d = q->dev;

    if (on == (q->link_active != NULL)) {
        return;
    }
    if (on) {
        q->next_active = d->active;
        q->link_active = &d->active;
        if (d->active) {
            d->active->link_active = &q->next_active;
        }
        d->active = q;
        return;
    }
    *q->link_active = q->next_active;
    if (q->next_active) {
        q->next_active->link_active = q->link_active;
    }
    q->link_active = NULL;
}

/* --- completions --- */

static void complete_send(struct tcpdev_qp *q, const struct tcpdev_send *w,
                          enum ibv_wc_status status)
{
    static const enum ibv_wc_opcode opcodes[] = {[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
                                                 [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
                                                 [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ};
    struct ibv_wc wc = {.wr_id = w->wr_id,
                        .status = status,
                        .opcode = opcodes[w->opcode],
                        .byte_len = w->len,
                        .qp_num = q->base.qp_num,
                        .vendor_err = status == IBV_WC_SUCCESS ? 0 : TCPDEV_VENDOR};

    if (status != IBV_WC_SUCCESS || w->signaled) {
        tcpdev_cq_push(q->base.send_cq, &wc);
    }
}

/* @a: the message that took it; NULL: none, it is flushed. */
static void complete_recv(struct tcpdev_qp *q, const struct tcpdev_arrival *a)
{
    struct ibv_wc wc = {.wr_id = q->rq.ring[q->rq.taken++ & (q->rq.room - 1)],
                        .status = IBV_WC_WR_FLUSH_ERR,
                        .qp_num = q->base.qp_num,
                        .vendor_err = TCPDEV_VENDOR};

    if (a) {
        wc.status = IBV_WC_SUCCESS;
        wc.vendor_err = 0;
        wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
        wc.wc_flags = IBV_WC_WITH_IMM;
        wc.byte_len = a->len;
        wc.imm_data = a->imm;
        wc.src_qp = q->far.qpn;
    }
    tcpdev_cq_push(q->base.recv_cq, &wc);
}

/* All that is posted comes back, in its order. */
static void flush(struct tcpdev_qp *q, enum ibv_wc_status first)
{
    while (q->sq.done != q->sq.posted) {
        complete_send(q, &q->sq.ring[q->sq.done++ & (q->sq.room - 1)], first);
        first = IBV_WC_WR_FLUSH_ERR;
    }
    q->sq.sent = q->sq.done;
    q->sent_off = 0;
    while (q->rq.taken != q->rq.posted) {
        complete_recv(q, NULL);
    }
    q->taken = q->arrived;
}

/* Out of all lists: no byte moves on its behalf from here on. */
static void part(struct tcpdev_qp *q)
{
    tcpdev_out_settle(q->dev, q, NULL);
    unready(q);
    unack(q);
    tcpdev_qp_active(q, false);
    q->stream = NULL;
    q->retry_at = 0;
}

void tcpdev_qp_fail(struct tcpdev_qp *q, enum ibv_wc_status status)
{
    part(q);
    if (q->end.stuck) {
        return; /* a flush would say that nothing is written any more */
    }
    q->base.state = IBV_QPS_ERR;
    flush(q, status);
}

void tcpdev_qp_acked(struct tcpdev_qp *q, uint32_t msn, bool is_response)
{
    uint32_t n = msn - q->first_msn + 1; /* messages that are done, of all */

    if (n - q->sq.done > q->sq.sent - q->sq.done) {
        return; /* of before: each is done once */
    }
    tcpdev_out_acked(q, msn);
    while (q->sq.done != n &&
           (q->sq.ring[q->sq.done & (q->sq.room - 1)].opcode != IBV_WR_RDMA_READ ||
            (is_response && q->sq.done + 1 == n))) {
        complete_send(q, &q->sq.ring[q->sq.done++ & (q->sq.room - 1)], IBV_WC_SUCCESS);
        q->since = tcpdev_now();
    }
    tcpdev_qp_active(q, q->sq.done != q->sq.posted);
    tcpdev_qp_ready(q); /* one whose key is wrong waits for those before it */
}

void tcpdev_qp_rewind(struct tcpdev_qp *q, uint64_t now, uint64_t wait_ns)
{
    unready(q);
    q->stream = NULL;
    q->sq.sent = q->sq.done;
    q->sent_off = 0;
    q->retry_at = has_work(q) ? now + wait_ns : 0;
    if (q->retry_at && q->retry_at < q->dev->wake_at) {
        q->dev->wake_at = q->retry_at;
    }
}

int tcpdev_qp_arrive(struct tcpdev_qp *q, const struct tcpdev_arrival *a)
{
    uint32_t room = q->arrivals_room ? 2 * q->arrivals_room : 64;
    struct tcpdev_arrival *bigger;

    if (q->arrived - q->taken == q->arrivals_room) {
        bigger = room <= TCPDEV_MAX_WR ? malloc(room * sizeof(*bigger)) : NULL;
        if (bigger == NULL) {
            return -1;
        }
        for (uint32_t i = q->taken; i != q->arrived; i++) {
            bigger[i & (room - 1)] = q->arrivals[i & (q->arrivals_room - 1)];
        }
        free(q->arrivals);
        q->arrivals = bigger;
        q->arrivals_room = room;
    }
    q->arrivals[q->arrived++ & (q->arrivals_room - 1)] = *a;
    return 0;
}

void tcpdev_qp_match(struct tcpdev_qp *q)
{
    uint32_t done;

    while (q->taken != q->arrived && q->rq.taken != q->rq.posted) {
        complete_recv(q, &q->arrivals[q->taken++ & (q->arrivals_room - 1)]);
    }
    done =
        q->taken == q->arrived ? q->next_msn : q->arrivals[q->taken & (q->arrivals_room - 1)].msn;
    if (done != q->acked_msn) {
        q->acked_msn = done;
        tcpdev_qp_owe(q);
    }
}

void tcpdev_qp_owe(struct tcpdev_qp *q)
{
    if (q->ack.due || q->asker == NULL) {
        return;
    }
    q->ack.due = true;
    q->next_ack = NULL;
    *q->asker->acks_end = q;
    q->asker->acks_end = &q->next_ack;
    tcpdev_wake(q->dev);
}

void tcpdev_qp_asker(struct tcpdev_qp *q, struct tcpdev_stream *s)
{
    q->ack.lost |= q->ack.due;
    unack(q);
    q->asker = s;
    if (q->ack.lost && s) {
        q->ack.lost = false;
        tcpdev_qp_owe(q);
    }
}

/* --- verbs --- */

static int init_attr_check(const struct ibv_qp_init_attr *a)
{
    if (a->qp_type != IBV_QPT_RC || a->srq != NULL || a->send_cq == NULL || a->recv_cq == NULL) {
        return EOPNOTSUPP;
    }
    return a->cap.max_send_wr > TCPDEV_MAX_WR || a->cap.max_recv_wr > TCPDEV_MAX_WR ||
                   a->cap.max_send_sge > 1 || a->cap.max_recv_sge > 1 ||
                   a->cap.max_inline_data > TCPDEV_INLINE
               ? EINVAL
               : 0;
}

static void qp_free(struct tcpdev_qp *q)
{
    free(q->sq.ring);
    free(q->rq.ring);
    free(q->arrivals);
    free(q);
}

static struct tcpdev_qp *qp_alloc(const struct ibv_qp_init_attr *a)
{
    struct tcpdev_qp *q = calloc(1, sizeof(*q));

    if (q == NULL) {
        return NULL;
    }
    q->sq.max = a->cap.max_send_wr;
    q->rq.max = a->cap.max_recv_wr;
    q->sq.room = power_of_two(a->cap.max_send_wr + 1);
    q->rq.room = power_of_two(a->cap.max_recv_wr + 1);
    q->sq.ring = calloc(q->sq.room, sizeof(*q->sq.ring));
    q->rq.ring = calloc(q->rq.room, sizeof(*q->rq.ring));
    if (q->sq.ring == NULL || q->rq.ring == NULL) {
        qp_free(q);
        return NULL;
    }
    return q;
}

/* A number that none has, and none had lately. */
static uint32_t qpn_new(struct tcpdev *d)
{
    do {
        d->last_qpn = (d->last_qpn + 1) & QPN_MASK;
    } while (d->last_qpn < 2 || tcpdev_qp_find(d, d->last_qpn));
    return d->last_qpn;
}

struct ibv_qp *tcpdev_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct tcpdev *d = tcpdev_of(pd->context);
    int rc = init_attr_check(attr);
    struct tcpdev_qp *q = rc ? NULL : qp_alloc(attr), **place;

    if (q == NULL) {
        errno = rc ? rc : ENOMEM;
        return NULL;
    }
    pthread_mutex_lock(&d->lock);
    rc = d->qp_count >= TCPDEV_MAX_QP ? ENOMEM : tcpdev_engine_start(d);
    if (rc == 0) {
        q->dev = d;
        q->all_signaled = attr->sq_sig_all != 0;
        q->base = (struct ibv_qp){.context = pd->context,
                                  .qp_context = attr->qp_context,
                                  .pd = pd,
                                  .send_cq = attr->send_cq,
                                  .recv_cq = attr->recv_cq,
                                  .qp_num = qpn_new(d),
                                  .state = IBV_QPS_RESET,
                                  .qp_type = IBV_QPT_RC};
        place = qp_place(d, q->base.qp_num);
        *place = q;
        d->qp_count++;
    }
    pthread_mutex_unlock(&d->lock);
    if (rc != 0) {
        qp_free(q);
        errno = rc;
        return NULL;
    }
    return &q->base;
}

int tcpdev_destroy_qp(struct ibv_qp *qp)
{
    struct tcpdev_qp *q = (struct tcpdev_qp *)qp;
    struct tcpdev *d = q->dev;

    pthread_mutex_lock(&d->lock);
    q->end.leaving = true;
    tcpdev_out_wait(d, q, NULL);
    if (tcpdev_gpu_wait(d, q, NULL) != 0) {
        pthread_mutex_unlock(&d->lock);
        return EBUSY;
    }
    part(q);
    *qp_place(d, qp->qp_num) = q->next_hash;
    d->qp_count--;
    pthread_mutex_unlock(&d->lock);
    qp_free(q);
    return 0;
}

/* The second GID of a peer, where it has two, comes as that of the alternate path. */
static int peer_set(struct tcpdev_qp *q, const struct ibv_qp_attr *attr)
{
    if (!attr->ah_attr.is_global ||
        tcpdev_addr_read(&q->dev->params, attr->ah_attr.grh.dgid.raw,
                         attr->alt_ah_attr.grh.dgid.raw, attr->ah_attr.dlid, &q->far.at,
                         q->far.secret) != 0) {
        return EINVAL;
    }
    q->far.qpn = attr->dest_qp_num;
    q->next_msn = attr->rq_psn & QPN_MASK;
    q->acked_msn = q->next_msn;
    q->next_off = 0;
    return 0;
}

/* As for a NIC: so often the time-out, which runs up to four times as long as it says. */
static void budget_set(struct tcpdev_qp *q, const struct ibv_qp_attr *attr)
{
    uint64_t timeout = attr->timeout ? 4096ull << attr->timeout : 4096ull << 31;

    q->budget_ns = timeout * (attr->retry_cnt + 1u);
    q->budget_ns = q->budget_ns < BUDGET_MIN ? BUDGET_MIN : q->budget_ns;
}

static int move(struct tcpdev_qp *q, const struct ibv_qp_attr *attr)
{
    enum ibv_qp_state from = q->base.state, to = attr->qp_state;
    int rc = 0;

    if (to == IBV_QPS_ERR) {
        if (from == IBV_QPS_RESET) {
            return EINVAL;
        }
        tcpdev_qp_fail(q, IBV_WC_WR_FLUSH_ERR);
        return 0;
    }
    if (to == IBV_QPS_RESET) {
        part(q);
        q->sq.posted = q->sq.sent = q->sq.done = q->sent_off = 0;
        q->reached = 0;
        q->ack.lost = false;
        q->rq.posted = q->rq.taken = q->arrived = q->taken = 0;
    } else if (from == IBV_QPS_RESET && to == IBV_QPS_INIT) {
        q->access = attr->qp_access_flags;
    } else if (from == IBV_QPS_INIT && to == IBV_QPS_RTR) {
        rc = peer_set(q, attr);
    } else if (from == IBV_QPS_RTR && to == IBV_QPS_RTS) {
        budget_set(q, attr);
        q->first_msn = (attr->sq_psn & QPN_MASK) - q->sq.posted;
    } else {
        rc = EINVAL;
    }
    if (rc == 0) {
        q->base.state = to;
    }
    return rc;
}

int tcpdev_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    struct tcpdev_qp *q = (struct tcpdev_qp *)qp;
    int rc = 0;

    if (!(mask & IBV_QP_STATE)) {
        return EOPNOTSUPP;
    }
    pthread_mutex_lock(&q->dev->lock);
    q->end.leaving = attr->qp_state == IBV_QPS_ERR || attr->qp_state == IBV_QPS_RESET;
    if (q->end.leaving) {
        tcpdev_out_wait(q->dev, q, NULL);
        rc = tcpdev_gpu_wait(q->dev, q, NULL);
    }
    rc = rc ? rc : move(q, attr);
    q->end.leaving = false;
    pthread_mutex_unlock(&q->dev->lock);
    return rc;
}

int tcpdev_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                    struct ibv_qp_init_attr *init)
{
    struct tcpdev_qp *q = (struct tcpdev_qp *)qp;

    memset(attr, 0, sizeof(*attr));
    memset(init, 0, sizeof(*init));
    pthread_mutex_lock(&q->dev->lock);
    attr->qp_state = attr->cur_qp_state = q->base.state;
    attr->dest_qp_num = q->far.qpn;
    pthread_mutex_unlock(&q->dev->lock);
    return 0;
}

static bool opcode_is_known(enum ibv_wr_opcode op)
{
    return op == IBV_WR_RDMA_WRITE || op == IBV_WR_RDMA_WRITE_WITH_IMM || op == IBV_WR_RDMA_READ;
}

static int send_copy(const struct tcpdev_qp *q, const struct ibv_send_wr *wr, struct tcpdev_send *w)
{
    const struct ibv_sge *sge = wr->num_sge ? wr->sg_list : NULL;

    if (!opcode_is_known(wr->opcode) || wr->num_sge > 1) {
        return EINVAL;
    }
    w->wr_id = wr->wr_id;
    w->opcode = wr->opcode;
    w->signaled = q->all_signaled || (wr->send_flags & IBV_SEND_SIGNALED);
    w->is_inline = (wr->send_flags & IBV_SEND_INLINE) != 0;
    w->imm = wr->imm_data;
    w->local = sge ? sge->addr : 0;
    w->len = sge ? sge->length : 0;
    w->lkey = sge ? sge->lkey : 0;
    w->remote = wr->wr.rdma.remote_addr;
    w->rkey = wr->wr.rdma.rkey;
    if (wr->opcode == IBV_WR_RDMA_READ && (w->is_inline || w->len > TCPDEV_CHUNK)) {
        return EINVAL;
    }
    if (w->is_inline && w->len > TCPDEV_INLINE) {
        return ENOMEM;
    }
    if (w->is_inline && w->len) {
        memcpy(w->data, (const void *)(uintptr_t)w->local, w->len);
    }
    return 0;
}

int tcpdev_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct tcpdev_qp *q = (struct tcpdev_qp *)qp;
    int rc = 0;

    pthread_mutex_lock(&q->dev->lock);
    for (; wr && rc == 0; wr = rc ? wr : wr->next) {
        struct tcpdev_send *w = &q->sq.ring[q->sq.posted & (q->sq.room - 1)];

        rc = q->base.state != IBV_QPS_RTS && q->base.state != IBV_QPS_ERR ? EINVAL
             : q->sq.posted - q->sq.done >= q->sq.max                     ? ENOMEM
                                                                          : send_copy(q, wr, w);
        if (rc != 0) {
            break;
        }
        if (q->sq.done == q->sq.posted) {
            q->since = tcpdev_now();
        }
        q->sq.posted++;
    }
    *bad = wr;
    if (q->base.state == IBV_QPS_ERR) {
        flush(q, IBV_WC_WR_FLUSH_ERR);
    } else if (q->sq.done != q->sq.posted) {
        tcpdev_qp_active(q, true);
        tcpdev_qp_ready(q);
    }
    pthread_mutex_unlock(&q->dev->lock);
    return rc;
}

int tcpdev_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct tcpdev_qp *q = (struct tcpdev_qp *)qp;
    int rc = 0;

    pthread_mutex_lock(&q->dev->lock);
    for (; wr; wr = wr->next) {
        rc = q->base.state == IBV_QPS_RESET || wr->num_sge > 1 ? EINVAL
             : q->rq.posted - q->rq.taken >= q->rq.max         ? ENOMEM
                                                               : 0;
        if (rc != 0) {
            break;
        }
        q->rq.ring[q->rq.posted & (q->rq.room - 1)] = wr->wr_id;
        q->rq.posted++;
    }
    *bad = wr;
    if (q->base.state == IBV_QPS_ERR) {
        flush(q, IBV_WC_WR_FLUSH_ERR);
    } else {
        tcpdev_qp_match(q);
    }
    pthread_mutex_unlock(&q->dev->lock);
    return rc;
}
