/*
 * What a stream of the TCP device has to write: heads of frames and what was copied behind them, in
 * one buffer; large payload of host memory has only its room there, and goes to the socket from
 * where it lies. The device's lock is not held while the socket takes it; who ends the queue pair
 * or the key that it belongs to waits until the call is over, and gets the rest copied into its
 * room: from then on nobody reads that memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "tcpdev_int.h"

#define OUT_MAX      (8u << 20) /* bytes that wait to be written; no request is read above half */
#define DIRECT_LEAST 8192       /* a payload below is copied: that costs less than a piece more */
#define IOVS         (2 * TCPDEV_DIRECTS + 1)

bool tcpdev_out_is_long(const struct tcpdev_stream *s)
{
    return tcpdev_stream_waiting(s) >= OUT_MAX / 2;
}

/* --- the buffer --- */

/* What waits comes to the begin of @to; room of payload that is not copied is skipped. */
static void buffer_move(struct tcpdev_stream *s, uint8_t *to)
{
    struct tcpdev_out *o = &s->out;
    size_t at = o->head;

    for (int i = 0; i <= o->directs; i++) {
        size_t end = i < o->directs ? o->direct[i].at : o->tail;

        if (end > at) {
            memmove(to + (at - o->head), o->bytes + at, end - at);
        }
        at = i < o->directs ? end + o->direct[i].len : end;
    }
    for (int i = 0; i < o->directs; i++) { /* of the first a part may be gone */
        struct tcpdev_direct *p = &o->direct[i];
        size_t gone = p->at < o->head ? o->head - p->at : 0;

        p->from += gone;
        p->len -= gone;
        p->at = p->at + gone - o->head;
    }
    o->tail -= o->head;
    o->head = 0;
}

static bool room_make(struct tcpdev_stream *s, size_t len)
{
    struct tcpdev_out *o = &s->out;
    size_t used = tcpdev_stream_waiting(s), room = o->room ? 2 * o->room : 2 * TCPDEV_TX_ROOM;
    uint8_t *bigger;

    if (o->tail + len <= o->room) {
        return true;
    }
    if (used + len <= o->room) {
        buffer_move(s, o->bytes);
        return true;
    }
    bigger = used + len <= OUT_MAX ? malloc(room) : NULL;
    if (bigger == NULL) {
        return false;
    }
    buffer_move(s, bigger);
    free(o->bytes);
    o->bytes = bigger;
    o->room = room;
    return true;
}

uint8_t *tcpdev_stream_put(struct tcpdev_stream *s, const struct tcpdev_frame *f)
{
    size_t len = TCPDEV_FRAME_SIZE + tcpdev_frame_payload(f);
    uint8_t *at;

    if (!room_make(s, len)) {
        return NULL;
    }
    at = s->out.bytes + s->out.tail;
    tcpdev_frame_pack(f, s->dialled ? s->keys.requests : s->keys.answers, s->sent++, at);
    s->out.tail += len;
    return at + TCPDEV_FRAME_SIZE;
}

bool tcpdev_out_bytes(struct tcpdev_stream *s, const void *bytes, size_t len)
{
    if (!room_make(s, len)) {
        return false;
    }
    memcpy(s->out.bytes + s->out.tail, bytes, len);
    s->out.tail += len;
    return true;
}

/* --- payload that goes from where it lies --- */

bool tcpdev_out_direct(struct tcpdev_stream *s, const struct tcpdev_direct *p)
{
    struct tcpdev_out *o = &s->out;
    struct tcpdev *d = s->dev;

    if (p->len < DIRECT_LEAST || o->directs == TCPDEV_DIRECTS) {
        return false;
    }
    if (o->directs == 0) {
        o->next = d->outs.list;
        o->link = &d->outs.list;
        if (o->next) {
            o->next->out.link = &o->next;
        }
        d->outs.list = s;
    }
    o->direct[o->directs] = *p;
    o->direct[o->directs++].at = o->tail - p->len;
    return true;
}

static void direct_remove(struct tcpdev_stream *s, int i)
{
    struct tcpdev_out *o = &s->out;

    o->directs--;
    memmove(&o->direct[i], &o->direct[i + 1], (size_t)(o->directs - i) * sizeof(o->direct[0]));
    if (o->directs == 0) {
        *o->link = o->next;
        if (o->next) {
            o->next->out.link = o->link;
        }
    }
}

/* What the socket has not taken of it is copied into its room. */
static void direct_settle(struct tcpdev_stream *s, int i)
{
    const struct tcpdev_direct *p = &s->out.direct[i];
    size_t gone = p->at < s->out.head ? s->out.head - p->at : 0;

    memcpy(s->out.bytes + p->at + gone, p->from + gone, p->len - gone);
    direct_remove(s, i);
}

void tcpdev_out_settle(struct tcpdev *d, const struct tcpdev_qp *q, const struct tcpdev_mr *m)
{
    struct tcpdev_stream *next;

    for (struct tcpdev_stream *s = d->outs.list; s; s = next) {
        next = s->out.next;
        for (int i = s->out.directs - 1; i >= 0; i--) {
            if ((q && s->out.direct[i].qp == q) || (m && s->out.direct[i].mr == m)) {
                direct_settle(s, i);
            }
        }
    }
}

void tcpdev_out_acked(struct tcpdev_qp *q, uint32_t msn)
{
    struct tcpdev_stream *s = q->stream;

    for (int i = s ? s->out.directs - 1 : -1; i >= 0; i--) {
        if (s->out.direct[i].qp == q && (int32_t)(msn - s->out.direct[i].msn) >= 0) {
            direct_settle(s, i);
        }
    }
}

void tcpdev_out_drop(struct tcpdev_stream *s)
{
    while (s->out.directs) {
        direct_remove(s, s->out.directs - 1);
    }
}

/* --- the socket --- */

static bool is_busy(const struct tcpdev *d, const struct tcpdev_qp *q, const struct tcpdev_mr *m)
{
    const struct tcpdev_stream *s = d->outs.busy;

    for (int i = 0; s && i < s->out.directs; i++) {
        if ((q == NULL && m == NULL) || (q && s->out.direct[i].qp == q) ||
            (m && s->out.direct[i].mr == m)) {
            return true;
        }
    }
    return false;
}

void tcpdev_out_wait(struct tcpdev *d, const struct tcpdev_qp *q, const struct tcpdev_mr *m)
{
    while (is_busy(d, q, m)) {
        pthread_cond_wait(&d->outs.written, &d->lock);
    }
    tcpdev_out_settle(d, q, m);
}

/* What one call of the socket gets, at most @most pieces of it. Lock held. */
static int pieces(const struct tcpdev_stream *s, struct iovec iov[IOVS], int most)
{
    const struct tcpdev_out *o = &s->out;
    size_t at = o->head;
    int n = 0;

    for (int i = 0; i <= o->directs && n < most; i++) {
        const struct tcpdev_direct *p = i < o->directs ? &o->direct[i] : NULL;
        size_t end = p ? p->at : o->tail;

        if (end > at) {
            iov[n++] = (struct iovec){o->bytes + at, end - at};
            at = end;
        }
        if (p && n < most) {
            iov[n++] =
                (struct iovec){(void *)(uintptr_t)(p->from + (at - p->at)), p->at + p->len - at};
            at = p->at + p->len;
        }
    }
    return n;
}

static void taken(struct tcpdev_stream *s, size_t n)
{
    struct tcpdev_out *o = &s->out;

    o->head += n;
    while (o->directs && o->direct[0].at + o->direct[0].len <= o->head) {
        direct_remove(s, 0);
    }
    if (o->head == o->tail) {
        o->head = o->tail = 0;
    }
}

struct call {
    int most, pieces;
    size_t bytes;
};

static ssize_t some_write(struct tcpdev_stream *s, struct call *c)
{
    struct tcpdev *d = s->dev;
    struct iovec iov[IOVS];
    struct msghdr msg = {.msg_iov = iov};
    ssize_t n;
    int err;

    pthread_mutex_lock(&d->lock);
    for (int i = s->out.directs - 1; i >= 0; i--) { /* who waits for its end waits once */
        if (tcpdev_qp_ends(s->out.direct[i].qp) || s->out.direct[i].mr->dead) {
            direct_settle(s, i);
        }
    }
    c->pieces = pieces(s, iov, c->most);
    d->outs.busy = s;
    pthread_mutex_unlock(&d->lock);
    c->bytes = 0;
    for (int i = 0; i < c->pieces; i++) {
        c->bytes += iov[i].iov_len;
    }
    msg.msg_iovlen = (size_t)c->pieces;
    n = sendmsg(s->fd, &msg, MSG_NOSIGNAL);
    err = errno;
    pthread_mutex_lock(&d->lock);
    if (n > 0) {
        taken(s, (size_t)n);
    }
    d->outs.busy = NULL;
    pthread_cond_broadcast(&d->outs.written);
    pthread_mutex_unlock(&d->lock);
    errno = err;
    return n;
}

/* Memory that is registered is not there: its queue pair fails, and the stream, in which a part of
 * the frame is. */
static void fault(struct tcpdev_stream *s)
{
    struct tcpdev_qp *q;

    pthread_mutex_lock(&s->dev->lock);
    q = s->out.directs ? s->out.direct[0].qp : NULL;
    tcpdev_out_drop(s);
    if (q) {
        tcpdev_qp_fail(q, IBV_WC_LOC_PROT_ERR);
    }
    pthread_mutex_unlock(&s->dev->lock);
    tcpdev_stream_fail(s, "memory that is registered is not there");
}

void tcpdev_out_write(struct tcpdev_stream *s)
{
    struct call c = {.most = IOVS};

    while (s->state != TCPDEV_DEAD && tcpdev_stream_waiting(s) > 0) {
        ssize_t n = some_write(s, &c);

        if (n > 0) {
            if ((size_t)n < c.bytes) {
                break; /* it is full */
            }
        } else if (errno == EAGAIN) {
            break;
        } else if (errno == EFAULT && c.pieces > 1) {
            c.most = 1; /* piece by piece, until it is found */
        } else if (errno == EFAULT) {
            fault(s);
        } else if (errno != EINTR) {
            tcpdev_stream_fail(s, strerror(errno));
        }
    }
}

void tcpdev_out_setup(struct tcpdev *d)
{
    pthread_cond_init(&d->outs.written, NULL);
}

void tcpdev_out_end(struct tcpdev *d)
{
    pthread_cond_destroy(&d->outs.written);
}
