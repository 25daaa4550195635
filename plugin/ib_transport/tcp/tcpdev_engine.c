/*
 * The TCP device's thread: sockets, hellos, bytes in and out. What the frames mean is in
 * tcpdev_frames.c.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/r2_log.h"
#include "tcpdev_int.h"

#define EVENTS_MAX    64
#define IN_PER_TURN   (512u << 10) /* bytes of one stream: the others want their turn too */
#define OUT_MAX       (8u << 20) /* bytes that wait to be written; no request is read above half */
#define GREETING_NS   5000000000ull /* a stream that is not UP by then never is */
#define REDIAL_NS     20000000ull   /* behind a stream that broke */
#define TICK_NS       10000000ull   /* while something is out: retries and budgets are looked at */
#define STRANGERS_MAX 64            /* accepted streams that have not proved the secret */
#define USER_TIMEOUT  10000         /* ms: TCP gives up data that is not acknowledged */
#define NOT_SENT_MOST                                                                              \
    (128 << 10) /* bytes that TCP holds and has not sent: a small message waits                    \
                   behind no more */

static void stream_fail(struct tcpdev_stream *s, const char *why);

/* --- streams --- */

static struct tcpdev_stream *stream_new(struct tcpdev *d, int fd, bool dialled)
{
    struct tcpdev_stream *s = malloc(sizeof(*s));
    struct epoll_event e = {.events = EPOLLIN | (dialled ? EPOLLOUT : 0), .data.ptr = s};
    int one = 1, user_timeout = USER_TIMEOUT, most = NOT_SENT_MOST;

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
    s->fd = fd;
    s->dialled = dialled;
    s->wants_out = dialled;
    s->since = tcpdev_now();
    s->state = dialled ? TCPDEV_CONNECTING : TCPDEV_HELLO;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
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

static bool stream_move(struct tcpdev_stream *s, enum tcpdev_stream_state to, const char *why)
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
    bool in = s->dialled || tcpdev_stream_waiting(s) < OUT_MAX / 2;
    struct epoll_event e = {.events = (in ? EPOLLIN : 0) | (out ? EPOLLOUT : 0), .data.ptr = s};

    if (s->wants_out != out || !in) {
        s->wants_out = out;
        epoll_ctl(s->dev->epoll_fd, EPOLL_CTL_MOD, s->fd, &e);
    }
}

uint8_t *tcpdev_stream_put(struct tcpdev_stream *s, const struct tcpdev_frame *f)
{
    size_t len = TCPDEV_FRAME_SIZE + tcpdev_frame_payload(f), used = tcpdev_stream_waiting(s);
    uint8_t *at;

    if (s->out_tail + len > s->out_room && used + len <= s->out_room) {
        memmove(s->out, s->out + s->out_head, used);
        s->out_head = 0;
        s->out_tail = used;
    } else if (s->out_tail + len > s->out_room) {
        size_t room = s->out_room ? 2 * s->out_room : 2 * TCPDEV_TX_ROOM;
        uint8_t *bigger = used + len <= OUT_MAX ? malloc(room) : NULL;

        if (bigger == NULL) {
            return NULL;
        }
        if (used) {
            memcpy(bigger, s->out + s->out_head, used);
        }
        free(s->out);
        s->out = bigger;
        s->out_room = room;
        s->out_head = 0;
        s->out_tail = used;
    }
    at = s->out + s->out_tail;
    tcpdev_frame_pack(f, s->dialled ? s->keys.requests : s->keys.answers, s->sent++, at);
    s->out_tail += len;
    return at + TCPDEV_FRAME_SIZE;
}

/* Bytes of a hello, which have no frame. */
static void put_bytes(struct tcpdev_stream *s, const void *bytes, size_t len)
{
    if (s->out == NULL) {
        s->out_room = 2 * TCPDEV_TX_ROOM;
        s->out = malloc(s->out_room);
    }
    if (s->out == NULL || s->out_tail + len > s->out_room) {
        stream_fail(s, "out of memory");
        return;
    }
    memcpy(s->out + s->out_tail, bytes, len);
    s->out_tail += len;
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
                tcpdev_qp_rewind(q, now, REDIAL_NS);
            }
            if (q->asker == s) {
                tcpdev_qp_asker(q, NULL);
            }
        }
    }
}

static void stream_fail(struct tcpdev_stream *s, const char *why)
{
    if (s->state == TCPDEV_DEAD) {
        return;
    }
    if (!s->dialled && s->state != TCPDEV_UP) {
        s->dev->count.strangers++;
    }
    stream_move(s, TCPDEV_DEAD, why);
    pthread_mutex_lock(&s->dev->lock);
    stream_part(s);
    pthread_mutex_unlock(&s->dev->lock);
    close(s->fd);
    s->fd = -1;
}

static void streams_reap(struct tcpdev *d, bool all)
{
    struct tcpdev_stream **at = &d->streams;

    while (*at) {
        struct tcpdev_stream *s = *at;

        if (all) {
            stream_fail(s, "the device is closed");
        }
        if (s->state != TCPDEV_DEAD) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        free(s->out);
        free(s);
    }
}

/* --- hellos --- */

static void hello_send(struct tcpdev_stream *s)
{
    uint8_t nonce[16];

    if (getrandom(nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce)) {
        stream_fail(s, "no random numbers");
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
    stream_move(s, TCPDEV_UP, "both have proved the secret");
    return NULL;
}

static const char *on_hello_of_dialler(struct tcpdev_stream *s, const uint8_t *at)
{
    uint8_t proof[TCPDEV_PROOF_SIZE];

    hello_send(s);
    tcpdev_keys_derive(s->dev->params.secret, at, s->hello, &s->keys);
    tcpdev_proof_pack(s->keys.proof_of_listener, proof);
    put_bytes(s, proof, sizeof(proof));
    stream_move(s, TCPDEV_PROOF, "it has said hello");
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
            stream_move(s, TCPDEV_UP, "both have proved the secret");
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

/* Payload that lies in the buffer. Lock held. */
static void payload_take(struct tcpdev_stream *s)
{
    size_t have = s->in_tail - s->in_head;
    uint32_t n = have < s->frame_left ? (uint32_t)have : s->frame_left;
    void *to = n ? tcpdev_take_place(s, n) : NULL;

    if (to) {
        memcpy(to, s->in + s->in_head, n);
    }
    s->in_head += n;
    s->frame_got += n;
    s->frame_left -= n;
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
            payload_take(s);
            if (s->frame_left) {
                break;
            }
            s->in_frame = false;
            why = tcpdev_take_end(s);
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

/*
 * Payload that is still in the socket goes where it belongs without a copy of ours; the kernel
 * refuses memory that is not there any more, where a copy would end the process.
 */
static ssize_t payload_read(struct tcpdev_stream *s)
{
    void *to;
    ssize_t n;
    int err;

    pthread_mutex_lock(&s->dev->lock);
    to = tcpdev_take_place(s, s->frame_left);
    n = recv(s->fd, to ? to : s->in,
             to || s->frame_left < sizeof(s->in) ? s->frame_left : sizeof(s->in), 0);
    err = errno;
    if (n < 0 && err == EFAULT) {
        s->frame_refused = true;
        err = EINTR; /* once more, to nowhere */
    }
    if (n > 0) {
        s->frame_got += (uint32_t)n;
        s->frame_left -= (uint32_t)n;
    }
    pthread_mutex_unlock(&s->dev->lock);
    errno = err;
    return n;
}

static ssize_t some_read(struct tcpdev_stream *s)
{
    ssize_t n;

    if (s->in_head == s->in_tail) {
        s->in_head = s->in_tail = 0;
    } else if (s->in_head) {
        memmove(s->in, s->in + s->in_head, s->in_tail - s->in_head);
        s->in_tail -= s->in_head;
        s->in_head = 0;
    }
    if (s->in_frame && s->in_tail == 0 && s->frame_left > TCPDEV_URGENT) {
        return payload_read(s);
    }
    n = recv(s->fd, s->in + s->in_tail, sizeof(s->in) - s->in_tail, 0);
    s->in_tail += n > 0 ? (size_t)n : 0;
    return n;
}

static void stream_read(struct tcpdev_stream *s)
{
    const char *why = NULL;
    size_t got = 0;

    while (got < IN_PER_TURN && s->state != TCPDEV_DEAD && why == NULL) {
        ssize_t n = some_read(s);

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
    }
    if (why) {
        stream_fail(s, why);
    }
}

/* --- out --- */

static void stream_write(struct tcpdev_stream *s)
{
    while (s->state != TCPDEV_DEAD && tcpdev_stream_waiting(s) > 0) {
        ssize_t n = send(s->fd, s->out + s->out_head, tcpdev_stream_waiting(s), MSG_NOSIGNAL);

        if (n > 0) {
            s->out_head += (size_t)n;
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            stream_fail(s, strerror(errno));
        }
    }
    if (s->out_head == s->out_tail) {
        s->out_head = s->out_tail = 0;
    }
}

/* Fills and writes until there is nothing to fill or the socket takes no more. */
static void stream_work(struct tcpdev_stream *s)
{
    bool more = s->state == TCPDEV_UP;

    stream_write(s);
    while (more && s->state == TCPDEV_UP && tcpdev_stream_waiting(s) < TCPDEV_CHUNK) {
        pthread_mutex_lock(&s->dev->lock);
        more = tcpdev_fill(s, tcpdev_now());
        pthread_mutex_unlock(&s->dev->lock);
        stream_write(s);
    }
    if (s->state != TCPDEV_DEAD) {
        listen_to(s);
    }
}

/* --- dial and accept --- */

static bool same_peer(const struct tcpdev_stream *s, const struct tcpdev_qp *q)
{
    return s->dialled && s->state != TCPDEV_DEAD && s->peer.sin_port == q->far.at.sin_port &&
           s->peer.sin_addr.s_addr == q->far.at.sin_addr.s_addr &&
           memcmp(s->secret, q->far.secret, sizeof(s->secret)) == 0;
}

static struct tcpdev_stream *dial(struct tcpdev *d, const struct tcpdev_qp *q)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr = d->params.addr};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct tcpdev_stream *s;

    if (fd < 0) {
        return NULL;
    }
    if (bind(fd, (struct sockaddr *)&from, sizeof(from)) != 0 ||
        (connect(fd, (const struct sockaddr *)&q->far.at, sizeof(q->far.at)) != 0 &&
         errno != EINPROGRESS)) {
        close(fd);
        return NULL;
    }
    s = stream_new(d, fd, true);
    if (s) {
        s->peer = q->far.at;
        memcpy(s->secret, q->far.secret, sizeof(s->secret));
    }
    return s;
}

/* Queue pairs that have something to send and no stream get one. Lock held. */
static void orphans_place(struct tcpdev *d)
{
    struct tcpdev_qp *q;

    while ((q = d->orphans) != NULL) {
        struct tcpdev_stream *s = d->streams;

        d->orphans = q->next_ready;
        q->is_ready = false;
        while (s && !same_peer(s, q)) {
            s = s->next;
        }
        s = s ? s : dial(d, q);
        if (s == NULL) {
            tcpdev_qp_rewind(q, tcpdev_now(), REDIAL_NS);
            continue;
        }
        q->stream = s;
        tcpdev_qp_ready(q);
    }
}

static void connect_done(struct tcpdev_stream *s)
{
    int err = 0;
    socklen_t len = sizeof(err);

    if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0) {
        err = errno;
    }
    if (err) {
        stream_fail(s, strerror(err));
        return;
    }
    stream_move(s, TCPDEV_HELLO, "connected");
    hello_send(s);
}

static void accept_all(struct tcpdev *d)
{
    int fd, strangers = 0;

    for (const struct tcpdev_stream *s = d->streams; s; s = s->next) {
        strangers += !s->dialled && s->state != TCPDEV_UP && s->state != TCPDEV_DEAD;
    }
    while ((fd = accept4(d->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        if (strangers++ >= STRANGERS_MAX) {
            d->count.strangers++;
            close(fd);
        } else {
            stream_new(d, fd, false);
        }
    }
}

/* --- time --- */

/* Retries that are due, and peers that have answered nothing for too long. Lock held. */
static void active_check(struct tcpdev *d, uint64_t now)
{
    struct tcpdev_qp *next;

    for (struct tcpdev_qp *q = d->active; q; q = next) {
        next = q->next_active;
        if (now > q->since && now - q->since > q->budget_ns) {
            tcpdev_qp_fail(q, IBV_WC_RETRY_EXC_ERR);
        } else if (q->retry_at && now >= q->retry_at) {
            q->retry_at = 0;
            tcpdev_qp_ready(q);
        }
    }
}

static void greetings_check(struct tcpdev *d, uint64_t now)
{
    for (struct tcpdev_stream *s = d->streams; s; s = s->next) {
        if (s->state != TCPDEV_UP && s->state != TCPDEV_DEAD && now > s->since + GREETING_NS) {
            stream_fail(s, "it has not proved the secret in time");
        }
    }
}

static bool has_greetings(const struct tcpdev *d)
{
    for (const struct tcpdev_stream *s = d->streams; s; s = s->next) {
        if (s->state != TCPDEV_UP) {
            return true;
        }
    }
    return false;
}

/* Milliseconds that it may wait; declares it asleep. Lock held. */
static int may_wait(struct tcpdev *d, uint64_t now)
{
    uint64_t until = d->active || has_greetings(d) ? now + TICK_NS : UINT64_MAX;

    if (d->orphans) {
        return 0;
    }
    for (const struct tcpdev_stream *s = d->streams; s; s = s->next) {
        if (s->state == TCPDEV_UP && tcpdev_stream_waiting(s) < TCPDEV_CHUNK &&
            (s->acks || ((s->ready[0] || s->ready[1]) && d->wake_at == UINT64_MAX))) {
            return 0;
        }
    }
    until = d->wake_at < until ? d->wake_at : until;
    atomic_store_explicit(&d->asleep, true, memory_order_relaxed);
    return until == UINT64_MAX ? -1 : until <= now ? 0 : (int)((until - now + 999999) / 1000000);
}

static void event_handle(struct tcpdev *d, const struct epoll_event *e)
{
    struct tcpdev_stream *s = e->data.ptr;
    uint64_t count;

    if (e->data.ptr == &d->listen_fd) {
        accept_all(d);
        return;
    }
    if (e->data.ptr == &d->wake_fd) {
        (void)!read(d->wake_fd, &count, sizeof(count));
        return;
    }
    if (s->state == TCPDEV_CONNECTING) {
        connect_done(s);
    } else if (s->state != TCPDEV_DEAD && (e->events & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
        stream_read(s);
    }
}

static void *engine_run(void *arg)
{
    struct tcpdev *d = arg;
    struct epoll_event events[EVENTS_MAX];

    while (!atomic_load_explicit(&d->stopping, memory_order_acquire)) {
        uint64_t now = tcpdev_now();
        int wait, n;

        greetings_check(d, now);
        pthread_mutex_lock(&d->lock);
        d->wake_at = UINT64_MAX;
        active_check(d, now);
        orphans_place(d);
        pthread_mutex_unlock(&d->lock);
        for (struct tcpdev_stream *s = d->streams; s; s = s->next) {
            stream_work(s);
        }
        streams_reap(d, false);
        pthread_mutex_lock(&d->lock);
        wait = may_wait(d, tcpdev_now());
        pthread_mutex_unlock(&d->lock);
        n = epoll_wait(d->epoll_fd, events, EVENTS_MAX, wait);
        atomic_store_explicit(&d->asleep, false, memory_order_relaxed);
        for (int i = 0; i < n; i++) {
            event_handle(d, &events[i]);
        }
    }
    streams_reap(d, true);
    return NULL;
}

int tcpdev_engine_start(struct tcpdev *d)
{
    sigset_t all, old;
    int rc;

    if (d->running) {
        return 0;
    }
    d->wake_at = UINT64_MAX;
    d->tokens_at = tcpdev_now();
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&d->thread, NULL, engine_run, d);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc == 0) {
        d->running = true;
        pthread_setname_np(d->thread, "r2-tcp");
    }
    return rc;
}

void tcpdev_engine_stop(struct tcpdev *d)
{
    uint64_t one = 1;

    if (d->running) {
        atomic_store_explicit(&d->stopping, true, memory_order_release);
        (void)!write(d->wake_fd, &one, sizeof(one));
        pthread_join(d->thread, NULL);
    }
    tcpdev_forget(d);
}
