/*
 * A stream of the TCP device: hellos, bytes in and out. What the frames mean is in tcpdev_frames.c.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/r2_log.h"
#include "tcpdev_int.h"

#define IN_PER_TURN   (512u << 10) /* bytes of one stream: the others want their turn too */
#define OUT_TURNS     4            /* buffers filled of one stream before the next has its turn */
#define KEEP_IDLE     30           /* s without a byte: then the peer is asked, every ... */
#define KEEP_INTERVAL 5     /* ... s, until USER_TIMEOUT: a peer that is gone leaves no stream */
#define USER_TIMEOUT  10000 /* ms: TCP gives up data that is not acknowledged */
#define NOT_SENT_MOST                                                                              \
    (128 << 10) /* bytes that TCP holds and has not sent: a small message waits                    \
                   behind no more */

/* --- streams --- */

struct tcpdev_stream *tcpdev_stream_new(struct tcpdev *d, int fd, bool dialled)
{
    struct tcpdev_stream *s = malloc(sizeof(*s));
    struct epoll_event e = {.events = EPOLLIN | (dialled ? EPOLLOUT : 0), .data.ptr = s};
    int one = 1, idle = KEEP_IDLE, interval = KEEP_INTERVAL, user_timeout = USER_TIMEOUT,
        most = NOT_SENT_MOST;

    if (s == NULL || epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, fd, &e) != 0) {
        free(s);
        close(fd);
        return NULL;
    }
    memset(s, 0, offsetof(struct tcpdev_stream, in));
    s->in_head = s->in_tail = 0;
    s->in_frame = false;
    s->frame_left = 0;
    s->ready[0] = s->ready[1] = s->acks = NULL;
    s->ready_end[0] = &s->ready[0];
    s->ready_end[1] = &s->ready[1];
    s->acks_end = &s->acks;
    s->dev = d;
    s->serial = ++d->serials;
    s->fd = fd;
    s->dialled = dialled;
    s->wants_out = dialled;
    s->since = tcpdev_now();
    s->state = dialled ? TCPDEV_CONNECTING : TCPDEV_HELLO;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout, sizeof(user_timeout));
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most, sizeof(most));
    s->next = d->streams;
    d->streams = s;
    return s;
}

/* Row: from, column: to. */
static const bool legal[TCPDEV_STREAM_STATES][TCPDEV_STREAM_STATES] = {
    [TCPDEV_CONNECTING] = {[TCPDEV_HELLO] = 1, [TCPDEV_DEAD] = 1},
    [TCPDEV_HELLO] = {[TCPDEV_PROOF] = 1, [TCPDEV_UP] = 1, [TCPDEV_DEAD] = 1},
    [TCPDEV_PROOF] = {[TCPDEV_UP] = 1, [TCPDEV_DEAD] = 1},
    [TCPDEV_UP] = {[TCPDEV_DEAD] = 1},
};

static const char *const state_names[TCPDEV_STREAM_STATES] = {
    [TCPDEV_CONNECTING] = "connecting",
    [TCPDEV_HELLO] = "hello",
    [TCPDEV_PROOF] = "proof",
    [TCPDEV_UP] = "up",
    [TCPDEV_DEAD] = "dead",
};

bool tcpdev_stream_move(struct tcpdev_stream *s, enum tcpdev_stream_state to, const char *why)
{
    if (!legal[s->state][to]) {
        return false;
    }
    R2_TRACE("TCP stream %d %s: %s -> %s: %s", s->fd, s->dialled ? "dialled" : "accepted",
             state_names[s->state], state_names[to], why);
    s->state = to;
    return true;
}

static void listen_to(struct tcpdev_stream *s)
{
    bool out = tcpdev_stream_waiting(s) > 0 || s->state == TCPDEV_CONNECTING;
    bool in = s->dialled || !tcpdev_out_is_long(s);
    struct epoll_event e = {.events = (in ? EPOLLIN : 0) | (out ? EPOLLOUT : 0), .data.ptr = s};

    if (s->wants_out != out || !in) {
        s->wants_out = out;
        epoll_ctl(s->dev->epoll_fd, EPOLL_CTL_MOD, s->fd, &e);
    }
}

/* Bytes of a hello, which have no frame. */
static void put_bytes(struct tcpdev_stream *s, const void *bytes, size_t len)
{
    if (!tcpdev_out_bytes(s, bytes, len)) {
        tcpdev_stream_fail(s, "out of memory");
    }
}

/* Queue pairs that it carried: what is out goes again, over another; what it asked is not answered.
 */
static void stream_part(struct tcpdev_stream *s)
{
    struct tcpdev *d = s->dev;
    uint64_t now = tcpdev_now();

    for (int i = 0; i < TCPDEV_BUCKETS; i++) {
        for (struct tcpdev_qp *q = d->qps[i]; q; q = q->next_hash) {
            if (q->stream == s) {
                tcpdev_qp_rewind(q, now, TCPDEV_REDIAL_NS);
            }
            if (q->asker == s) {
                tcpdev_qp_asker(q, NULL);
            }
        }
    }
}

void tcpdev_stream_fail(struct tcpdev_stream *s, const char *why)
{
    if (s->state == TCPDEV_DEAD) {
        return;
    }
    tcpdev_stream_move(s, TCPDEV_DEAD, why);
    pthread_mutex_lock(&s->dev->lock);
    tcpdev_out_drop(s);
    stream_part(s);
    pthread_mutex_unlock(&s->dev->lock);
    /* a child of fork() may have the socket, too: neither events nor the peer wait for its end */
    epoll_ctl(s->dev->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
    shutdown(s->fd, SHUT_RDWR);
    close(s->fd);
    s->fd = -1;
}

void tcpdev_streams_reap(struct tcpdev *d, bool all)
{
    struct tcpdev_stream **at = &d->streams;

    while (*at) {
        struct tcpdev_stream *s = *at;

        if (all) {
            tcpdev_stream_fail(s, "the device is closed");
        }
        if (s->state != TCPDEV_DEAD) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        free(s->out.bytes);
        free(s);
    }
}

/* --- hellos --- */

void tcpdev_stream_hello(struct tcpdev_stream *s)
{
    uint8_t nonce[16];

    if (getrandom(nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce)) {
        tcpdev_stream_fail(s, "no random numbers");
        return;
    }
    tcpdev_hello_pack(nonce, s->hello);
    put_bytes(s, s->hello, sizeof(s->hello));
}

static const uint8_t *in_take(struct tcpdev_stream *s, size_t len)
{
    const uint8_t *at = s->in + s->in_head;

    if (s->in_tail - s->in_head < len) {
        return NULL;
    }
    s->in_head += len;
    return at;
}

/* Dialler: hello and proof of the listener; then ours. */
static const char *on_hello_of_listener(struct tcpdev_stream *s, const uint8_t *at)
{
    uint8_t proof[TCPDEV_PROOF_SIZE];

    tcpdev_keys_derive(s->secret, s->hello, at, &s->keys);
    if (!tcpdev_proof_is_right(s->keys.proof_of_listener, at + TCPDEV_HELLO_SIZE)) {
        return "it does not know the secret of the peer";
    }
    tcpdev_proof_pack(s->keys.proof_of_dialler, proof);
    put_bytes(s, proof, sizeof(proof));
    tcpdev_stream_move(s, TCPDEV_UP, "both have proved the secret");
    return NULL;
}

static const char *on_hello_of_dialler(struct tcpdev_stream *s, const uint8_t *at)
{
    uint8_t proof[TCPDEV_PROOF_SIZE];

    tcpdev_stream_hello(s);
    tcpdev_keys_derive(s->dev->params.secret, at, s->hello, &s->keys);
    tcpdev_proof_pack(s->keys.proof_of_listener, proof);
    put_bytes(s, proof, sizeof(proof));
    tcpdev_stream_move(s, TCPDEV_PROOF, "its hello is here");
    return NULL;
}

/* Moves on by what is in the buffer; whether there may be more to do. */
static bool greet(struct tcpdev_stream *s, const char **why)
{
    const uint8_t *at;

    if (s->state == TCPDEV_PROOF) {
        at = in_take(s, TCPDEV_PROOF_SIZE);
        if (at && !tcpdev_proof_is_right(s->keys.proof_of_dialler, at)) {
            *why = "it does not know our secret";
        } else if (at) {
            tcpdev_stream_move(s, TCPDEV_UP, "both have proved the secret");
        }
        return at != NULL;
    }
    at = in_take(s, s->dialled ? TCPDEV_HELLO_SIZE + TCPDEV_PROOF_SIZE : TCPDEV_HELLO_SIZE);
    if (at == NULL) {
        return false;
    }
    *why = tcpdev_hello_check(at);
    if (*why == NULL) {
        *why = s->dialled ? on_hello_of_listener(s, at) : on_hello_of_dialler(s, at);
    }
    return true;
}

/* --- in --- */

/* Payload that lies in the buffer, but for a word that is not whole yet. Lock held. False: the rest
 * has to come first. */
static bool payload_take(struct tcpdev_stream *s)
{
    size_t have = s->in_tail - s->in_head;
    uint32_t n = have < s->frame_left ? (uint32_t)have : s->frame_left;
    struct tcpdev_place p = s->frame_left ? tcpdev_take_place(s) : (struct tcpdev_place){NULL};

    if (p.to && n < s->frame_left) {
        uint32_t over = (uint32_t)((uintptr_t)(p.to + n) & 7);

        n = over < n ? n - over : 0;
    }
    if (p.to && p.mr->gpu == NULL) {
        tcpdev_copy_in_order(p.to, s->in + s->in_head, n);
    } else if (p.to && n && !tcpdev_gpu_write(p.qp, p.mr, p.to, s->in + s->in_head, n)) {
        tcpdev_take_refuse(s, p.qp);
    }
    s->in_head += n;
    s->frame_got += n;
    s->frame_left -= n;
    return s->frame_left == 0;
}

/* Frames that are whole, and the begin of one that is not. */
static const char *frames_take(struct tcpdev_stream *s)
{
    const char *why = NULL;

    pthread_mutex_lock(&s->dev->lock);
    while (why == NULL) {
        struct tcpdev_frame f;
        const uint8_t *at;

        if (s->in_frame) {
            if (!payload_take(s)) {
                break;
            }
            s->in_frame = false;
            tcpdev_take_end(s);
            continue;
        }
        at = in_take(s, TCPDEV_FRAME_SIZE);
        if (at == NULL) {
            break;
        }
        why =
            tcpdev_frame_parse(at, s->dialled ? s->keys.answers : s->keys.requests, s->taken++, &f);
        if (why == NULL) {
            why = tcpdev_take(s, &f);
            s->in_frame = true;
        }
    }
    pthread_mutex_unlock(&s->dev->lock);
    return why;
}

/* @room: so much it could have been. */
static ssize_t some_read(struct tcpdev_stream *s, size_t *room)
{
    ssize_t n;

    if (s->in_head == s->in_tail) {
        s->in_head = s->in_tail = 0;
    } else if (s->in_head) {
        memmove(s->in, s->in + s->in_head, s->in_tail - s->in_head);
        s->in_tail -= s->in_head;
        s->in_head = 0;
    }
    *room = sizeof(s->in) - s->in_tail;
    n = recv(s->fd, s->in + s->in_tail, *room, 0);
    s->in_tail += n > 0 ? (size_t)n : 0;
    return n;
}

void tcpdev_stream_read(struct tcpdev_stream *s)
{
    const char *why = NULL;
    size_t got = 0;

    while (got < IN_PER_TURN && s->state != TCPDEV_DEAD && why == NULL) {
        size_t room;
        ssize_t n = some_read(s, &room);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            break;
        }
        if (n <= 0) {
            why = n == 0 ? "closed by the peer" : strerror(errno);
            break;
        }
        got += (size_t)n;
        while (why == NULL && s->state != TCPDEV_UP && s->state != TCPDEV_DEAD && greet(s, &why)) {
        }
        if (why == NULL && s->state == TCPDEV_UP) {
            why = frames_take(s);
        }
        if ((size_t)n < room) {
            break; /* it has no more: saves the call that would say so */
        }
    }
    if (why) {
        tcpdev_stream_fail(s, why);
    }
}

/* --- out --- */

/* Fills and writes until there is nothing to fill or the socket takes no more. */
void tcpdev_stream_work(struct tcpdev_stream *s)
{
    bool more = s->state == TCPDEV_UP;

    tcpdev_out_write(s);
    /* others want their turn, too: what is left is found by may_wait() */
    for (int turn = 0; turn < OUT_TURNS && more && s->state == TCPDEV_UP &&
                       tcpdev_stream_waiting(s) < TCPDEV_CHUNK;
         turn++) {
        pthread_mutex_lock(&s->dev->lock);
        more = tcpdev_fill(s, tcpdev_now());
        pthread_mutex_unlock(&s->dev->lock);
        tcpdev_out_write(s);
    }
    if (s->state != TCPDEV_DEAD) {
        listen_to(s);
    }
}
