/* One TCP connection: buffers, reading, writing, the end. */
#include "oob_tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/r2_log.h"

#define RX_FIRST 512 /* a hello and an AUTH: nobody unknown gets more */
#define RX_UP    8192

/* Room for @need bytes behind tail; -1 with errno. */
static int buf_reserve(struct tcp_buf *b, size_t need)
{
    size_t used = b->tail - b->head, cap = b->cap ? b->cap : RX_FIRST;
    uint8_t *data;

    if (b->cap - b->tail >= need) {
        return 0;
    }
    /* moving only when at least half is free keeps the cost per byte constant */
    if (b->cap >= used + need && b->head >= b->cap / 2) {
        memmove(b->data, b->data + b->head, used);
        b->head = 0;
        b->tail = used;
        return 0;
    }
    while (cap < used + need) {
        cap *= 2;
    }
    if (cap == b->cap) {
        cap *= 2;
    }
    data = malloc(cap);
    if (data == NULL) {
        return -1;
    }
    if (used > 0) {
        memcpy(data, b->data + b->head, used);
    }
    free(b->data);
    *b = (struct tcp_buf){.data = data, .tail = used, .cap = cap};
    return 0;
}

static void buf_free(struct tcp_buf *b)
{
    free(b->data);
    *b = (struct tcp_buf){0};
}

/* An empty buffer starts again at the front, and gives a big block back. */
static void buf_consume(struct tcp_buf *b, size_t n)
{
    b->head += n;
    if (b->head < b->tail) {
        return;
    }
    b->head = b->tail = 0;
    if (b->cap > 4 * OOB_FRAME_MAX) {
        buf_free(b);
    }
}

/* A state is left for good, but that one which drains may be told so again. */
void oob_chan_move(struct tcp_chan *c, enum chan_state to)
{
    static const char *const names[CHAN_STATES] = {"connecting", "hello",    "auth",
                                                   "up",         "draining", "dead"};
    static const unsigned char legal[CHAN_STATES][CHAN_STATES] = {
        [CHAN_CONNECTING] = {[CHAN_HELLO] = 1, [CHAN_DRAIN] = 1, [CHAN_DEAD] = 1},
        [CHAN_HELLO] = {[CHAN_AUTH] = 1, [CHAN_DRAIN] = 1, [CHAN_DEAD] = 1},
        [CHAN_AUTH] = {[CHAN_UP] = 1, [CHAN_DRAIN] = 1, [CHAN_DEAD] = 1},
        [CHAN_UP] = {[CHAN_DRAIN] = 1, [CHAN_DEAD] = 1},
        [CHAN_DRAIN] = {[CHAN_DRAIN] = 1, [CHAN_DEAD] = 1},
    };

    if (!legal[c->state][to]) {
        R2_WARN("a channel to %s cannot go from %s to %s", c->peer ? c->peer->str : "a stranger",
                names[c->state], names[to]);
        return;
    }
    R2_TRACE("channel to %s %s -> %s", c->peer ? c->peer->str : "a stranger", names[c->state],
             names[to]);
    c->state = to;
}

struct tcp_chan *oob_chan_create(struct tcp_oob *o, int fd, struct tcp_peer *peer,
                                 enum chan_state state)
{
    struct tcp_chan *c = calloc(1, sizeof(*c));
    struct epoll_event e = {.events = EPOLLIN | (state == CHAN_CONNECTING ? EPOLLOUT : 0)};

    if (c == NULL) {
        goto err_fd;
    }
    e.data.ptr = c;
    if (epoll_ctl(o->epfd, EPOLL_CTL_ADD, fd, &e) != 0) {
        goto err_chan;
    }
    c->oob = o;
    c->fd = fd;
    c->peer = peer;
    c->state = state;
    c->by_us = peer != NULL;
    c->armed = state == CHAN_CONNECTING;
    c->since = c->last_rx = o->turn.now;
    c->deadline = o->turn.now + o->hello_timeout;
    c->next = o->chans;
    o->chans = c;
    if (peer != NULL) {
        peer->chans++;
    } else {
        oob_door_enter(c);
    }
    oob_tcp_touch(o);
    return c;

err_chan:
    free(c);
err_fd:
    close(fd);
    errno = ENOMEM;
    return NULL;
}

void oob_chan_close(struct tcp_chan *c)
{
    if (c->state == CHAN_DEAD) {
        return;
    }
    if (c->peer == NULL) {
        oob_door_leave(c);
    } else if (c->peer->cur == c) {
        c->peer->cur = NULL;
    } else if (c->peer->dial == c) {
        c->peer->dial = NULL;
    }
    oob_chan_move(c, CHAN_DEAD);
    oob_fork_hold();
    oob_fd_close(c->oob, &c->fd);
    oob_fork_release();
    buf_free(&c->tx);
    oob_tcp_touch(c->oob);
}

void oob_chan_fail(struct tcp_chan *c, int refused)
{
    struct tcp_peer *p = c->peer;
    int mattered = p != NULL && (p->cur == c || p->dial == c);

    if (c->state == CHAN_DEAD) {
        return;
    }
    oob_chan_close(c);
    if (mattered) {
        oob_peer_lost(p, c, refused);
    }
}

void oob_chan_drain(struct tcp_chan *c, int mute)
{
    if (c->state == CHAN_DEAD) {
        return;
    }
    if (c->peer != NULL && c->peer->cur == c) {
        c->peer->cur = NULL;
    }
    if (c->peer != NULL && c->peer->dial == c) {
        c->peer->dial = NULL;
    }
    oob_chan_move(c, CHAN_DRAIN);
    c->mute |= mute != 0;
    c->deadline = c->oob->turn.now + c->oob->hello_timeout;
    oob_chan_flush(c);
    oob_tcp_touch(c->oob);
}

int oob_chan_put(struct tcp_chan *c, const void *data, size_t len)
{
    if (buf_reserve(&c->tx, len) != 0) {
        return -1;
    }
    memcpy(c->tx.data + c->tx.tail, data, len);
    c->tx.tail += len;
    return 0;
}

int oob_chan_put_frame(struct tcp_chan *c, uint8_t type, const void *payload, size_t len)
{
    if (buf_reserve(&c->tx, OOB_FRAME_HEAD + len + OOB_FRAME_MAC) != 0) {
        return -1;
    }
    c->tx.tail += oob_frame_pack(c->tx.data + c->tx.tail, type, payload, len, c->tx_seq++,
                                 c->by_us ? c->keys.dialler : c->keys.listener);
    return 0;
}

static void write_arm(struct tcp_chan *c, int want)
{
    struct epoll_event e = {.events = (c->eof ? 0 : EPOLLIN) | (want ? EPOLLOUT : 0),
                            .data.ptr = c};

    if (c->armed == want && !c->eof) {
        return;
    }
    if (epoll_ctl(c->oob->epfd, EPOLL_CTL_MOD, c->fd, &e) != 0) {
        c->err = errno;
    }
    c->armed = want != 0;
}

void oob_chan_flush(struct tcp_chan *c)
{
    if (c->state == CHAN_DEAD || c->state == CHAN_CONNECTING || c->err != 0) {
        return;
    }
    while (c->tx.tail > c->tx.head) {
        ssize_t n = send(c->fd, c->tx.data + c->tx.head, c->tx.tail - c->tx.head, MSG_NOSIGNAL);
        if (n > 0) {
            buf_consume(&c->tx, (size_t)n);
        } else if (n < 0 && errno == EAGAIN) {
            break;
        } else if (n < 0 && errno != EINTR) {
            c->err = errno;
            break;
        }
    }
    if (c->state == CHAN_DRAIN && c->tx.tail == c->tx.head && !c->fin) {
        c->fin = 1;
        if (shutdown(c->fd, SHUT_WR) != 0) {
            c->err = errno;
        }
    }
    if (c->fin && c->eof) {
        oob_chan_close(c);
        return;
    }
    write_arm(c, c->tx.tail > c->tx.head);
    if (c->err != 0) {
        oob_tcp_touch(c->oob);
    }
}

/* A frame of an established channel. -1: c was closed. */
static int frame_take(struct tcp_chan *c, const struct oob_frame *f)
{
    struct tcp_oob *o = c->oob;

    switch (f->type) {
    case OOB_DATA:
        if (c->mute || o->stopping) {
            return 0;
        }
        o->count.received++;
        o->count.bytes_received += f->len;
        o->ev.message(o->ev.arg, (struct r2_oob_peer *)c->peer, f->payload, f->len);
        return c->state == CHAN_DEAD ? -1 : 0;
    case OOB_PING:
        if (c->state == CHAN_UP && oob_chan_put_frame(c, OOB_PONG, NULL, 0) == 0) {
            oob_chan_flush(c);
        }
        return 0;
    case OOB_PONG:
        return 0;
    default:
        oob_tcp_bad_frame(c, c->peer->name.uuid, OOB_BAD_TYPE);
        oob_chan_fail(c, 0);
        return -1;
    }
}

/* One frame off the front of c->rx. 1: done, look again; 0: more bytes are needed; -1: c was
 * closed. */
static int frame_next(struct tcp_chan *c)
{
    struct tcp_oob *o = c->oob;
    int unknown = c->state == CHAN_AUTH, rc;
    struct oob_frame f;

    switch (oob_frame_parse(c->rx.data + c->rx.head, c->rx.tail - c->rx.head,
                            unknown ? OOB_AUTH_MAX : R2_OOB_MAX_MESSAGE, c->rx_seq,
                            c->by_us ? c->keys.listener : c->keys.dialler, &f)) {
    case OOB_PARSE_OK:
        break;
    case OOB_PARSE_MORE:
        return 0;
    default:
        if (unknown) {
            oob_tcp_stranger(o, c, OOB_STRANGER_SECRET);
        } else {
            oob_tcp_bad_frame(c, c->peer->name.uuid, f.why);
        }
        oob_chan_fail(c, 0);
        return -1;
    }
    c->rx_seq++;
    rc = unknown ? oob_auth_frame(c, &f) : frame_take(c, &f);
    if (rc < 0) {
        return -1;
    }
    buf_consume(&c->rx, f.total);
    return 1;
}

static void parse_all(struct tcp_chan *c)
{
    int rc;

    do {
        if (c->rx.tail == c->rx.head) {
            return;
        }
        if (c->state == CHAN_DRAIN && c->peer == NULL) {
            /* refused: whatever else it says, it is only read so that the refusal is not lost to an
             * RST */
            buf_consume(&c->rx, c->rx.tail - c->rx.head);
            return;
        }
        rc = c->state == CHAN_HELLO ? oob_auth_hello(c) : frame_next(c);
    } while (rc > 0 && c->state != CHAN_DEAD);
}

/*
 * Both ends have dialled, and the peer leaves @c, its own dial: because it has accepted ours, most
 * likely. It said so before it closed @c, but sockets are looked at in any order. Then @c only runs
 * dry; else it is lost. A dial with bytes in hand is being read already.
 */
static void dial_first(struct tcp_chan *c)
{
    struct tcp_chan *dial = c->peer != NULL && c->peer->cur == c ? c->peer->dial : NULL;

    if (dial != NULL && dial->state == CHAN_AUTH && dial->rx.tail == dial->rx.head) {
        oob_chan_read(dial);
    }
}

/* The peer closed. In the middle of a frame that is an error, between frames its way to say
 * goodbye. */
static void eof_take(struct tcp_chan *c)
{
    if (c->rx.tail == c->rx.head) {
        dial_first(c);
    }
    if (c->state == CHAN_DRAIN && c->tx.tail > c->tx.head && c->rx.tail == c->rx.head) {
        /* the peer has sent its last message and still listens: ours go out first; EOF would be
         * readable for ever */
        c->eof = 1;
        oob_chan_flush(c);
        return;
    }
    if (c->rx.tail > c->rx.head) {
        if (c->peer != NULL && c->state != CHAN_HELLO && c->state != CHAN_AUTH) {
            oob_tcp_bad_frame(c, c->peer->name.uuid, OOB_BAD_CUT);
        } else {
            oob_tcp_stranger(c->oob, c, OOB_STRANGER_CUT);
        }
    }
    oob_chan_fail(c, 0);
}

/* Room for the rest of a frame that is known, and for a good piece anyway. */
static int rx_reserve(struct tcp_chan *c)
{
    size_t have = c->rx.tail - c->rx.head, frame = 0, want = RX_UP;

    if (c->state != CHAN_UP && c->state != CHAN_DRAIN) {
        return buf_reserve(&c->rx, RX_FIRST / 2);
    }
    if (have > 0) {
        frame = oob_frame_size(c->rx.data + c->rx.head, have);
    }
    if (frame > have + want) {
        want = frame - have;
    }
    return buf_reserve(&c->rx, want);
}

/* @turn: until that is over; else all that there is, up to the budget. */
static void read_some(struct tcp_chan *c, bool turn)
{
    size_t budget = OOB_READ_BUDGET;

    while (c->state != CHAN_DEAD && budget > 0) {
        ssize_t n;
        size_t room;
        if (rx_reserve(c) != 0) {
            oob_chan_fail(c, 0);
            return;
        }
        room = c->rx.cap - c->rx.tail;
        n = recv(c->fd, c->rx.data + c->rx.tail, room, 0);
        if (n == 0) {
            eof_take(c);
            return;
        }
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            if (errno != EAGAIN) {
                oob_chan_fail(c, 0);
            }
            return;
        }
        c->rx.tail += (size_t)n;
        c->last_rx = c->oob->turn.now;
        budget -= (size_t)n < budget ? (size_t)n : budget;
        parse_all(c);
        if ((size_t)n < room || (turn && oob_tcp_turn_is_over(c->oob))) {
            return;
        }
    }
}

void oob_chan_read(struct tcp_chan *c)
{
    read_some(c, false);
}

static void connect_done(struct tcp_chan *c)
{
    int err = 0;
    socklen_t len = sizeof(err);

    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0) {
        err = errno;
    }
    if (err != 0) {
        oob_chan_fail(c, err == ECONNREFUSED);
    } else {
        oob_auth_begin(c);
    }
}

void oob_chan_event(struct tcp_chan *c, uint32_t events)
{
    if (c->state == CHAN_DEAD) {
        return;
    }
    if (c->state == CHAN_CONNECTING) {
        connect_done(c);
        return;
    }
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        read_some(c, true);
    }
    if (c->state != CHAN_DEAD && (events & EPOLLOUT)) {
        oob_chan_flush(c);
    }
}

void oob_chan_reap(struct tcp_oob *o)
{
    struct tcp_chan **at = &o->chans;

    while (*at != NULL) {
        struct tcp_chan *c = *at;
        if (c->state != CHAN_DEAD) {
            at = &c->next;
            continue;
        }
        oob_fork_hold();
        *at = c->next;
        oob_fork_release();
        if (c->peer != NULL) {
            c->peer->chans--;
        }
        buf_free(&c->rx);
        free(c);
    }
}
