/* The TCP device's thread: who dials, who is let in, and what time brings. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tcpdev_int.h"

#define EVENTS_MAX    64
#define GREETING_NS   5000000000ull /* a stream that is not UP by then never is */
#define TICK_NS       10000000ull   /* while something is out: retries and budgets are looked at */
#define LISTEN_NS     100000000ull  /* behind an accept for which there was no descriptor */
#define CROWDED_NS    200000000ull  /* where there are too many strangers, one has so long */
#define STRANGERS_MAX 64            /* accepted streams that have not proved the secret */

/* --- dial and accept --- */

static bool same_peer(const struct tcpdev_stream *s, const struct tcpdev_qp *q)
{
    return s->dialled && s->state != TCPDEV_DEAD && tcpdev_at_same(&s->peer, &q->far.at) &&
           memcmp(s->secret, q->far.secret, sizeof(s->secret)) == 0;
}

static struct tcpdev_stream *dial(struct tcpdev *d, const struct tcpdev_qp *q)
{
    int fd = socket(q->far.at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct tcpdev_stream *s;
    union tcpdev_at from;

    if (fd < 0) {
        return NULL;
    }
    tcpdev_addr_ours(&d->params, &from);
    if (bind(fd, &from.any, tcpdev_at_len(&from)) != 0 ||
        (connect(fd, &q->far.at.any, tcpdev_at_len(&q->far.at)) != 0 && errno != EINPROGRESS)) {
        close(fd);
        return NULL;
    }
    s = tcpdev_stream_new(d, fd, true);
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
            tcpdev_qp_rewind(q, tcpdev_now(), TCPDEV_REDIAL_NS);
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
        tcpdev_stream_fail(s, strerror(err));
        return;
    }
    tcpdev_stream_move(s, TCPDEV_HELLO, "connected");
    tcpdev_stream_hello(s);
}

/* Whether the listening socket is looked at. */
static void listen_set(struct tcpdev *d, bool on)
{
    struct epoll_event e = {.events = on ? EPOLLIN : 0, .data.ptr = &d->listen_fd};

    epoll_ctl(d->epoll_fd, EPOLL_CTL_MOD, d->listen_fd, &e);
}

static bool is_stranger(const struct tcpdev_stream *s)
{
    return !s->dialled && s->state != TCPDEV_UP && s->state != TCPDEV_DEAD;
}

/* The oldest stranger makes room: who knows the secret proves it within two round trips. */
static bool make_room(struct tcpdev *d)
{
    struct tcpdev_stream *oldest = NULL;

    for (struct tcpdev_stream *s = d->streams; s; s = s->next) {
        if (is_stranger(s) && (oldest == NULL || s->since < oldest->since)) {
            oldest = s;
        }
    }
    if (oldest == NULL || tcpdev_now() < oldest->since + CROWDED_NS) {
        return false;
    }
    tcpdev_stream_fail(oldest, "it has not proved the secret, and others wait");
    return true;
}

static void accept_all(struct tcpdev *d)
{
    int fd, strangers = 0;

    for (const struct tcpdev_stream *s = d->streams; s; s = s->next) {
        strangers += is_stranger(s);
    }
    while ((fd = accept4(d->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        if (strangers >= STRANGERS_MAX && !make_room(d)) {
            close(fd);
            continue;
        }
        strangers += strangers < STRANGERS_MAX;
        tcpdev_stream_new(d, fd, false);
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        listen_set(d, false); /* it would be readable for ever */
        d->listen_at = tcpdev_now() + LISTEN_NS;
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
            tcpdev_stream_fail(s, "it has not proved the secret in time");
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
    uint64_t until = d->active || d->listen_at || has_greetings(d) ? now + TICK_NS : UINT64_MAX;

    if (d->orphans) {
        return 0;
    }
    for (const struct tcpdev_stream *s = d->streams; s; s = s->next) {
        if (s->state == TCPDEV_UP && tcpdev_stream_waiting(s) < TCPDEV_CHUNK &&
            (s->acks || s->ready[0] || (s->ready[1] && !d->is_held))) {
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
        tcpdev_stream_read(s);
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
        if (d->listen_at && now >= d->listen_at) {
            d->listen_at = 0;
            listen_set(d, true);
        }
        pthread_mutex_lock(&d->lock);
        d->wake_at = UINT64_MAX;
        d->is_held = false;
        active_check(d, now);
        orphans_place(d);
        pthread_mutex_unlock(&d->lock);
        for (struct tcpdev_stream *s = d->streams; s; s = s->next) {
            tcpdev_stream_work(s);
        }
        tcpdev_streams_reap(d, false);
        pthread_mutex_lock(&d->lock);
        wait = may_wait(d, tcpdev_now());
        pthread_mutex_unlock(&d->lock);
        n = epoll_wait(d->epoll_fd, events, EVENTS_MAX, wait);
        atomic_store_explicit(&d->asleep, false, memory_order_relaxed);
        for (int i = 0; i < n; i++) {
            event_handle(d, &events[i]);
        }
    }
    tcpdev_streams_reap(d, true);
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
    d->tokens.at = tcpdev_now();
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

void tcpdev_exit(void)
{
    for (int i = 0; tcpdev_get(i); i++) {
        struct tcpdev *d = tcpdev_get(i);

        atomic_store_explicit(&d->stopping, true, memory_order_release);
        pthread_mutex_lock(&d->lock);
        tcpdev_out_wait(d, NULL, NULL);
        tcpdev_gpu_wait(d, d->gpu.busy_qp, NULL);
        for (int b = 0; b < TCPDEV_BUCKETS; b++) {
            for (struct tcpdev_qp *q = d->qps[b]; q; q = q->next_hash) {
                tcpdev_qp_fail(q, IBV_WC_WR_FLUSH_ERR);
            }
        }
        pthread_mutex_unlock(&d->lock);
    }
}
