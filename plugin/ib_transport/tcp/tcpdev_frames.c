/* What the TCP device's frames mean: requests on their way out, and what comes in. */
#include <string.h>

#include "tcpdev_int.h"

#define NOT_READY_NS 5000000ull /* a queue pair that does not receive yet is asked again behind */

/* --- out --- */

static void acks_fill(struct tcpdev_stream *s)
{
    while (s->acks && tcpdev_stream_waiting(s) < TCPDEV_TX_ROOM) {
        struct tcpdev_qp *q = s->acks;
        struct tcpdev_frame f = {
            .op = TCPDEV_ACK, .to = q->far.qpn, .from = q->base.qp_num, .msn = q->acked_msn - 1};

        if (tcpdev_stream_put(s, &f) == NULL) {
            return; /* it stays in the list */
        }
        s->acks = q->next_ack;
        if (s->acks == NULL) {
            s->acks_end = &s->acks;
        }
        q->ack.due = false;
    }
}

/* How this device uses what a work request names. */
static int local_access(const struct tcpdev_send *w)
{
    return w->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0;
}

/* Whether it may. */
static bool local_is_allowed(const struct tcpdev_qp *q, const struct tcpdev_send *w)
{
    return w->is_inline ||
           tcpdev_mem_is_allowed(q->dev, w->lkey, w->local, w->len, local_access(w));
}

/* Payload of @w, the next @n bytes, in memory @m; NULL: its own. */
static struct tcpdev_mr *request_mem(const struct tcpdev_qp *q, const struct tcpdev_send *w,
                                     uint32_t n)
{
    return w->is_inline || n == 0 || w->opcode == IBV_WR_RDMA_READ
               ? NULL
               : tcpdev_mem_find(q->dev, w->lkey, w->local, w->len, 0);
}

/* The next @n bytes of @w, in @m, where the CPU reads them; NULL: they are a GPU's, and it has not
 * given them. */
static const void *request_bytes(struct tcpdev_qp *q, const struct tcpdev_send *w,
                                 struct tcpdev_mr *m, uint32_t n)
{
    const uint8_t *from = (const uint8_t *)(uintptr_t)w->local + q->sent_off;

    if (m == NULL) {
        return w->data + q->sent_off; /* of a request without bytes it is not used */
    }
    return m->gpu ? tcpdev_gpu_read(q, m, from, n) : from;
}

/* Memory of the host goes to the socket from where it lies; what is small, or a GPU's, is copied.
 */
static void payload_put(struct tcpdev_stream *s, struct tcpdev_qp *q, struct tcpdev_mr *m,
                        const struct tcpdev_frame *f, const void *from, uint8_t *to)
{
    struct tcpdev_direct p = {.len = f->len, .from = from, .qp = q, .mr = m, .msn = f->msn};

    if (m == NULL || m->gpu || !tcpdev_out_direct(s, &p)) {
        memcpy(to, from, f->len);
    }
    q->dev->tokens.left -= f->len;
}

/* What its next message names is not to be read: those before it come to their end first. */
static void request_refuse(struct tcpdev_qp *q)
{
    if (q->sq.done == q->sq.sent) {
        tcpdev_qp_fail(q, IBV_WC_LOC_PROT_ERR);
    }
}

/* One frame of @q, which is in no list. False: there is no memory for it now. */
static bool request_fill(struct tcpdev_stream *s, struct tcpdev_qp *q, uint64_t now)
{
    const struct tcpdev_send *w = &q->sq.ring[q->sq.sent & (q->sq.room - 1)];
    uint32_t left = w->len - q->sent_off, n = left < TCPDEV_CHUNK ? left : TCPDEV_CHUNK;
    bool has_imm = w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    struct tcpdev_frame f = {.op = w->opcode == IBV_WR_RDMA_READ ? TCPDEV_READ : TCPDEV_WRITE,
                             .to = q->far.qpn,
                             .from = q->base.qp_num,
                             .msn = q->first_msn + q->sq.sent,
                             .len = n,
                             .off = q->sent_off,
                             .addr = w->remote + q->sent_off,
                             .key = w->rkey,
                             .imm = w->imm};
    struct tcpdev_mr *m;
    const void *from;
    uint8_t *to;
    uint64_t at;

    if (tcpdev_qp_ends(q)) {
        return true;
    }
    if (!local_is_allowed(q, w)) {
        request_refuse(q);
        return true;
    }
    if (n < left) { /* a word of 8 lies in one frame */
        f.len = n -= (uint32_t)((f.addr + n) & 7);
    }
    f.flags = n == left ? TCPDEV_LAST | (has_imm ? TCPDEV_IMM : 0) : 0;
    m = request_mem(q, w, n);
    from = request_bytes(q, w, m, n);
    if (from == NULL) {
        request_refuse(q);
        return true;
    }
    to = tcpdev_stream_put(s, &f);
    if (to == NULL) {
        return false;
    }
    if (tcpdev_frame_payload(&f)) {
        payload_put(s, q, m, &f, from, to);
    }
    q->sent_off += n;
    if (f.flags & TCPDEV_LAST) {
        q->sq.sent++;
        q->sent_off = 0;
    }
    at = (uint64_t)q->sq.sent << 32 | q->sent_off;
    if ((int64_t)(at - q->reached) > 0) {
        q->reached = at;
        q->since = now;
    }
    return true;
}

/* Bytes that the rate has room for; more than any message without one. */
static bool may_send(struct tcpdev *d, uint64_t now)
{
    double most = (double)d->params.rate * 0.004; /* the engine may come late by so long */

    if (d->params.rate == 0) {
        return true;
    }
    d->tokens.left += (double)d->params.rate * (double)(now - d->tokens.at) / 1e9;
    most = most > 2.0 * TCPDEV_CHUNK ? most : 2.0 * TCPDEV_CHUNK;
    d->tokens.left = d->tokens.left > most ? most : d->tokens.left;
    d->tokens.at = now;
    if (d->tokens.left > 0) {
        return true;
    }
    d->is_held = true;
    now += (uint64_t)(-d->tokens.left * 1e9 / (double)d->params.rate) + 100000;
    d->wake_at = now < d->wake_at ? now : d->wake_at;
    return false;
}

static struct tcpdev_qp *ready_take(struct tcpdev_stream *s)
{
    for (int i = 0; i < 2; i++) {
        struct tcpdev_qp *q = s->ready[i];

        if (q) {
            s->ready[i] = q->next_ready;
            if (s->ready[i] == NULL) {
                s->ready_end[i] = &s->ready[i];
            }
            q->is_ready = false;
            return q;
        }
    }
    return NULL;
}

bool tcpdev_fill(struct tcpdev_stream *s, uint64_t now)
{
    struct tcpdev_qp *q;
    size_t before = tcpdev_stream_waiting(s);

    acks_fill(s);
    while (s->dialled &&
           tcpdev_stream_waiting(s) + TCPDEV_CHUNK + TCPDEV_FRAME_SIZE <= TCPDEV_TX_ROOM &&
           (s->ready[0] || (s->ready[1] && may_send(s->dev, now)))) { /* small ones are not held */
        q = ready_take(s);
        if (!request_fill(s, q, now)) {
            tcpdev_qp_rewind(q, now, NOT_READY_NS);
            break;
        }
        if (q->base.state == IBV_QPS_RTS && !tcpdev_qp_ends(q) &&
            local_is_allowed(q, &q->sq.ring[q->sq.sent & (q->sq.room - 1)])) {
            tcpdev_qp_ready(q);
        }
    }
    return tcpdev_stream_waiting(s) != before;
}

/* --- in: answers --- */

/* The queue pair of ours that an answer is for, if it has message @f->msn out. */
static struct tcpdev_qp *asked(struct tcpdev_stream *s, const struct tcpdev_frame *f)
{
    struct tcpdev_qp *q = tcpdev_qp_find(s->dev, f->to);

    return q && q->stream == s && !tcpdev_qp_ends(q) && q->base.state == IBV_QPS_RTS &&
                   q->far.qpn == f->from &&
                   f->msn - q->first_msn - q->sq.done < q->sq.sent - q->sq.done
               ? q
               : NULL;
}

static void on_nak(struct tcpdev_stream *s, const struct tcpdev_frame *f)
{
    struct tcpdev_qp *q = tcpdev_qp_find(s->dev, f->to);

    /* a message of which only a part is sent may be refused, too */
    if (q == NULL || q->stream != s || q->far.qpn != f->from ||
        f->msn - q->first_msn - q->sq.done > q->sq.sent - q->sq.done) {
        return;
    }
    if (f->imm == TCPDEV_NAK_NOT_READY) {
        tcpdev_qp_rewind(q, tcpdev_now(), NOT_READY_NS);
        return;
    }
    if (f->msn - q->first_msn != q->sq.done) {
        tcpdev_qp_acked(q, f->msn - 1, false);
    }
    tcpdev_qp_fail(q, IBV_WC_REM_ACCESS_ERR);
}

static const char *answer_take(struct tcpdev_stream *s, const struct tcpdev_frame *f)
{
    struct tcpdev_qp *q = asked(s, f);
    const struct tcpdev_send *w;

    switch (f->op) {
    case TCPDEV_ACK:
        if (q) {
            tcpdev_qp_acked(q, f->msn, false);
        }
        return NULL;
    case TCPDEV_NAK:
        on_nak(s, f);
        return NULL;
    case TCPDEV_RESPONSE:
        w = q ? &q->sq.ring[(f->msn - q->first_msn) & (q->sq.room - 1)] : NULL;
        s->frame_refused = w == NULL || w->opcode != IBV_WR_RDMA_READ || w->len != f->len;
        return NULL;
    default:
        return "a request where answers come";
    }
}

/* --- in: requests --- */

static void nak(struct tcpdev_stream *s, const struct tcpdev_frame *f, enum tcpdev_nak why)
{
    struct tcpdev_frame answer = {
        .op = TCPDEV_NAK, .to = f->from, .from = f->to, .msn = f->msn, .imm = why};

    s->frame_refused = true;
    if (f->off == 0 || why != TCPDEV_NAK_NOT_READY) { /* once per message is enough */
        tcpdev_stream_put(s, &answer);
    }
}

static struct tcpdev_qp *receiver_of(struct tcpdev_stream *s, const struct tcpdev_frame *f)
{
    struct tcpdev_qp *q = tcpdev_qp_find(s->dev, f->to);

    return q && !tcpdev_qp_ends(q) &&
                   (q->base.state == IBV_QPS_RTR || q->base.state == IBV_QPS_RTS) &&
                   q->far.qpn == f->from
               ? q
               : NULL;
}

/* The memory that write @f is for; NULL: it may not. */
static struct tcpdev_mr *write_place(const struct tcpdev_qp *q, const struct tcpdev_frame *f)
{
    return q->access & IBV_ACCESS_REMOTE_WRITE
               ? tcpdev_mem_find(q->dev, f->key, f->addr, f->len, IBV_ACCESS_REMOTE_WRITE)
               : NULL;
}

/* What read @f asks for, where the CPU reads it; NULL: it may not, or a GPU has not given it. */
static const void *read_bytes(struct tcpdev_qp *q, const struct tcpdev_frame *f)
{
    const void *from = (const void *)(uintptr_t)f->addr;
    struct tcpdev_mr *m;

    if (!(q->access & IBV_ACCESS_REMOTE_READ)) {
        return NULL;
    }
    if (f->len == 0) {
        return f; /* no byte of it is read */
    }
    m = tcpdev_mem_find(q->dev, f->key, f->addr, f->len, IBV_ACCESS_REMOTE_READ);
    return m && m->gpu ? tcpdev_gpu_read(q, m, from, f->len) : m ? from : NULL;
}

/* Reads come one at a time and are small: answered at once, or later. */
static void on_read(struct tcpdev_stream *s, struct tcpdev_qp *q, const struct tcpdev_frame *f)
{
    struct tcpdev_frame answer = {.op = TCPDEV_RESPONSE,
                                  .flags = TCPDEV_LAST,
                                  .to = f->from,
                                  .from = f->to,
                                  .msn = f->msn,
                                  .len = f->len};
    const void *from = read_bytes(q, f);
    uint8_t *to;

    if (from == NULL) {
        tcpdev_qp_fail(q, IBV_WC_WR_FLUSH_ERR);
        nak(s, f, TCPDEV_NAK_ACCESS);
        return;
    }
    if (q->taken != q->arrived) { /* the answer would say that what waits is done */
        nak(s, f, TCPDEV_NAK_NOT_READY);
        return;
    }
    to = tcpdev_stream_put(s, &answer);
    if (to == NULL) {
        nak(s, f, TCPDEV_NAK_NOT_READY);
        return;
    }
    memcpy(to, from, f->len);
    if (f->msn == q->next_msn) { /* else it is asked again: its bytes were lost with a stream */
        q->acked_msn = ++q->next_msn;
    }
}

static const char *request_take(struct tcpdev_stream *s, const struct tcpdev_frame *f)
{
    struct tcpdev_qp *q = receiver_of(s, f);
    int32_t ahead;

    if (f->op != TCPDEV_WRITE && f->op != TCPDEV_READ) {
        return "an answer where requests come";
    }
    if (q == NULL) {
        nak(s, f, TCPDEV_NAK_NOT_READY);
        return NULL;
    }
    if (q->asker && s->serial < q->asker->serial) {
        s->frame_refused = true; /* the peer has left this stream: what lies in it came again */
        return NULL;
    }
    if (q->asker != s) {
        tcpdev_qp_asker(q, s);
    }
    ahead = (int32_t)(f->msn - q->next_msn);
    if (ahead == 0 && f->off == 0) {
        q->next_off = 0;
    }
    if (ahead != 0 || f->off != q->next_off) { /* again, or behind one that was refused */
        s->frame_refused = true;
        if (ahead < 0 && f->op == TCPDEV_READ) {
            on_read(s, q, f);
        } else if (ahead < 0 && (f->flags & TCPDEV_LAST)) {
            tcpdev_qp_owe(q);
        }
        return NULL;
    }
    if (f->op == TCPDEV_READ) {
        on_read(s, q, f);
        return NULL;
    }
    if (f->len && write_place(q, f) == NULL) {
        tcpdev_qp_fail(q, IBV_WC_WR_FLUSH_ERR);
        nak(s, f, TCPDEV_NAK_ACCESS);
    }
    return NULL;
}

const char *tcpdev_take(struct tcpdev_stream *s, const struct tcpdev_frame *f)
{
    s->frame = *f;
    s->frame_got = 0;
    s->frame_left = tcpdev_frame_payload(f);
    s->frame_refused = false;
    return s->dialled ? answer_take(s, f) : request_take(s, f);
}

void tcpdev_take_refuse(struct tcpdev_stream *s, struct tcpdev_qp *q)
{
    s->frame_refused = true;
    if (q && s->dialled) {
        tcpdev_qp_fail(q, IBV_WC_LOC_PROT_ERR);
    } else if (q && s->frame.msn == q->next_msn && s->frame.off == q->next_off) {
        tcpdev_qp_fail(q, IBV_WC_WR_FLUSH_ERR);
        nak(s, &s->frame, TCPDEV_NAK_ACCESS);
    }
}

/*
 * Looked at for each piece: between two of them the queue pair may have gone to ERR, and the key
 * away.
 */
struct tcpdev_place tcpdev_take_place(struct tcpdev_stream *s)
{
    const struct tcpdev_frame *f = &s->frame;
    struct tcpdev_place p = {.qp = s->frame_refused ? NULL
                                   : s->dialled     ? asked(s, f)
                                                    : receiver_of(s, f)};
    const struct tcpdev_send *w;
    uint64_t to = f->addr;

    if (p.qp && s->dialled) {
        w = &p.qp->sq.ring[(f->msn - p.qp->first_msn) & (p.qp->sq.room - 1)];
        to = w->local;
        p.mr = w->is_inline || w->len == 0
                   ? NULL
                   : tcpdev_mem_find(s->dev, w->lkey, w->local, w->len, local_access(w));
    } else if (p.qp && f->msn == p.qp->next_msn && f->off == p.qp->next_off) {
        p.mr = write_place(p.qp, f);
    }
    if (p.mr == NULL) {
        tcpdev_take_refuse(s, p.qp);
        return p;
    }
    p.to = (uint8_t *)(uintptr_t)to + s->frame_got;
    return p;
}

static void request_end(struct tcpdev_stream *s, struct tcpdev_qp *q)
{
    const struct tcpdev_frame *f = &s->frame;
    struct tcpdev_arrival a = {.msn = f->msn, .imm = f->imm, .len = f->off + f->len};

    q->next_off += f->len;
    if (!(f->flags & TCPDEV_LAST)) {
        return;
    }
    q->next_off = 0;
    if ((f->flags & TCPDEV_IMM) && tcpdev_qp_arrive(q, &a) != 0) {
        nak(s, &(struct tcpdev_frame){.to = f->to, .from = f->from, .msn = f->msn},
            TCPDEV_NAK_NOT_READY);
        return;
    }
    q->next_msn++;
    tcpdev_qp_match(q);
}

void tcpdev_take_end(struct tcpdev_stream *s)
{
    const struct tcpdev_frame *f = &s->frame;
    struct tcpdev_qp *q;

    if (s->frame_refused) {
        return;
    }
    if (s->dialled) {
        q = f->op == TCPDEV_RESPONSE ? asked(s, f) : NULL;
        if (q) {
            tcpdev_qp_acked(q, f->msn, true);
        }
        return;
    }
    q = f->op == TCPDEV_READ ? NULL : receiver_of(s, f);
    if (q && f->msn == q->next_msn && f->off == q->next_off) {
        request_end(s, q);
    }
}
