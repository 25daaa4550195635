/* The endpoint: TCP beneath, turns, polling, the end of MPI, the end of the process. */
#include "oob_mpi.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define MESSAGES_PER_TURN 256

static struct mpi_oob *to_mpi(struct r2_oob *oob)
{
    return (struct mpi_oob *)oob;
}

void mpi_touch(struct mpi_oob *o)
{
    uint64_t one = 1;

    if (o->touched) {
        return;
    }
    o->touched = 1;
    if (!o->in_progress) {
        (void)!write(o->box.wakefd, &one, sizeof(one));
    }
}

/* ---- the end of MPI ---- */

static void leave_begin(struct mpi_oob *o)
{
    o->leaving = 1;
    for (struct mpi_peer *p = o->peers; p != NULL; p = p->next_all) {
        uint8_t code = MPI_FIN_LEAVE;
        if (p->via == MPI_VIA_MPI && p->cur.state == MPI_CHAN_UP) {
            (void)mpi_chan_put(p, &p->cur, MPI_KIND_FIN, OOB_PING, &code, 1);
        }
    }
}

/* Everybody by MPI has taken our leave, or has taken leave itself, or cannot. */
static bool leave_is_through(const struct mpi_oob *o)
{
    for (const struct mpi_peer *p = o->peers; p != NULL; p = p->next_all) {
        if (p->via == MPI_VIA_MPI && p->cur.state == MPI_CHAN_UP && p->out != NULL) {
            return 0;
        }
    }
    return 1;
}

static void leave_end(struct mpi_oob *o)
{
    o->leaving = o->left = 1;
    for (struct mpi_peer *p = o->peers; p != NULL; p = p->next_all) {
        mpi_peer_to_tcp(p);
    }
    world_took_leave(&o->box);
}

/* ---- a turn ---- */

/* What MPI has for us and what it has brought away; how much moved. */
static int exchange(struct mpi_oob *o)
{
    struct world_in *m;
    int n = world_poll(), taken = 0;

    while (taken < MESSAGES_PER_TURN && (m = world_take(&o->box)) != NULL) {
        mpi_chan_message(o, m);
        free(m);
        taken++;
    }
    n += taken;
    if (taken == MESSAGES_PER_TURN) {
        mpi_touch(o); /* there may be more */
    }
    for (struct mpi_peer *p = o->peers; p != NULL; p = p->next_all) {
        if (p->out != NULL) {
            n += mpi_peer_pump(p);
        }
    }
    return n;
}

/* When to look next: soon after something moved, and later and later while nothing does. */
static uint64_t poll_at(const struct mpi_oob *o)
{
    uint64_t wait = r2_elapsed(o->now, o->last_active) / 8, most = MPI_POLL_IDLE_NS;

    for (const struct mpi_peer *p = o->peers; p != NULL && most == MPI_POLL_IDLE_NS;
         p = p->next_all) {
        if (p->via == MPI_VIA_MPI) {
            most = MPI_POLL_MAX_NS;
        }
    }
    if (wait > most || o->last_active == 0) {
        wait = most;
    }
    return o->now + (wait < MPI_POLL_MIN_NS ? MPI_POLL_MIN_NS : wait);
}

/*
 * Turns follow each other within a poll. A process that had no processor for longer finds timers
 * that ran out meanwhile, and what would have kept them from it is still on its way up: such time
 * does not count, but for as much as a busy turn may take.
 */
static void absence_excuse(struct mpi_oob *o)
{
    uint64_t most = o->keepalive / MPI_ABSENT, gap = 0;

    if (o->last_turn != 0) {
        gap = r2_elapsed(o->now, o->last_turn);
    }
    o->last_turn = o->now;
    for (struct mpi_peer *p = o->peers; gap > most && p != NULL; p = p->next_all) {
        mpi_chan_excuse(p, gap - most);
    }
}

static uint64_t scan(struct mpi_oob *o)
{
    uint64_t next = UINT64_MAX, t;

    for (struct mpi_peer *p = o->peers; p != NULL; p = p->next_all) {
        if (p->via != MPI_VIA_MPI) {
            continue;
        }
        t = mpi_chan_scan(p);
        if (t < next) {
            next = t;
        }
    }
    return next;
}

static uint64_t mpi_turn(struct mpi_oob *o)
{
    uint64_t next = UINT64_MAX, t;
    enum world_state s;
    char why[160];

    if (o->left || o->stopping) {
        return UINT64_MAX;
    }
    absence_excuse(o);
    s = world_state(why, sizeof(why));
    if (s == WORLD_ENDING && !o->leaving) {
        leave_begin(o);
    }
    if (s != WORLD_ENDED && exchange(o) > 0) {
        o->last_active = o->now;
    }
    if (s == WORLD_ENDED || (o->leaving && leave_is_through(o))) {
        leave_end(o);
    }
    if (o->left) {
        return UINT64_MAX;
    }
    next = scan(o);
    t = poll_at(o);
    return t < next ? t : next;
}

static uint64_t mpi_progress(struct r2_oob *oob, uint64_t now_ns)
{
    struct mpi_oob *o = to_mpi(oob);
    uint64_t next, t, ignored;

    o->now = now_ns;
    o->in_progress = 1;
    o->touched = 0;
    (void)!read(o->box.wakefd, &ignored, sizeof(ignored));
    next = mpi_turn(o);
    t = o->tcp->ops->progress(o->tcp, now_ns);
    if (t < next) {
        next = t;
    }
    mpi_peer_reap(o);
    o->in_progress = 0;
    if (o->touched) {
        o->touched = 0;
        mpi_touch(o);
        next = now_ns;
    }
    return next;
}

/* ---- the end of the process ---- */

static void send_gone(struct mpi_oob *o)
{
    for (struct mpi_peer *p = o->peers; p != NULL; p = p->next_all) {
        if (p->via == MPI_VIA_MPI) {
            mpi_chan_fin(p, MPI_FIN_GONE);
        }
    }
}

static int all_out(struct mpi_oob *o)
{
    struct world_in *m;
    char why[160];

    if (world_state(why, sizeof(why)) == WORLD_ENDED) {
        return 1;
    }
    (void)world_poll();
    while ((m = world_take(&o->box)) != NULL) {
        mpi_chan_message(o, m);
        free(m);
    }
    for (struct mpi_peer *p = o->peers; p != NULL; p = p->next_all) {
        (void)mpi_peer_pump(p);
        if (p->via == MPI_VIA_MPI && !p->gone && p->out != NULL) {
            return 0;
        }
    }
    return 1;
}

static void mpi_drain(struct r2_oob *oob, uint64_t limit_ns)
{
    static const struct timespec pause = {.tv_nsec = MPI_POLL_MIN_NS * 5};
    struct mpi_oob *o = to_mpi(oob);
    uint64_t now = o->env.now_ns(o->env.arg), end = now + limit_ns;

    o->now = now;
    o->stopping = 1;
    if (!o->left) {
        /* The last word, a GONE of a peer that does the same, must still be read: the channel stays
         * for it. */
        for (struct mpi_peer *p = o->peers; p != NULL; p = p->next_all) {
            uint8_t code = MPI_FIN_GONE;
            if (p->via == MPI_VIA_MPI && p->cur.state == MPI_CHAN_UP) {
                (void)mpi_chan_put(p, &p->cur, MPI_KIND_FIN, OOB_PING, &code, 1);
            }
        }
        while (!all_out(o) && now < end) {
            (void)nanosleep(&pause, NULL);
            now = o->env.now_ns(o->env.arg);
        }
        for (struct mpi_peer *p = o->peers; p != NULL; p = p->next_all) {
            mpi_chan_drop_all(p);
        }
        o->left = 1;
        world_took_leave(&o->box);
    }
    o->tcp->ops->drain(o->tcp, end > now ? end - now : 0);
}

static void mpi_destroy(struct r2_oob *oob)
{
    struct mpi_oob *o = to_mpi(oob);

    o->stopping = 1;
    o->in_progress = 1;
    send_gone(o);
    world_leave(&o->box);
    mpi_peer_free_all(o);
    o->tcp->ops->destroy(o->tcp);
    close(o->box.wakefd);
    close(o->epfd);
    free(o);
}

/* ---- the rest of the table ---- */

static int mpi_fd(struct r2_oob *oob)
{
    return to_mpi(oob)->epfd;
}

static void mpi_name_get(struct r2_oob *oob, struct r2_oob_name *name)
{
    *name = to_mpi(oob)->name;
}

static void mpi_counters(struct r2_oob *oob, struct r2_oob_counters *out)
{
    const struct r2_oob_counters *c = &to_mpi(oob)->count;

    to_mpi(oob)->tcp->ops->counters(to_mpi(oob)->tcp, out);
    out->sent += c->sent;
    out->received += c->received;
    out->bytes_sent += c->bytes_sent;
    out->bytes_received += c->bytes_received;
    out->strangers += c->strangers;
    out->bad_frames += c->bad_frames;
    out->reconnects += c->reconnects;
    out->queue_full += c->queue_full;
}

static const struct r2_oob_ops mpi_ops = {
    .name = "mpi",
    .destroy = mpi_destroy,
    .fd = mpi_fd,
    .progress = mpi_progress,
    .name_get = mpi_name_get,
    .peer_get = mpi_peer_get,
    .peer_ref = mpi_peer_ref,
    .peer_put = mpi_peer_put,
    .peer_uuid = mpi_peer_uuid,
    .peer_str = mpi_peer_str,
    .peer_is_up = mpi_peer_is_up,
    .send = mpi_peer_send,
    .drain = mpi_drain,
    .counters = mpi_counters,
};

static int wake_open(struct mpi_oob *o)
{
    struct epoll_event e = {.events = EPOLLIN};

    o->epfd = epoll_create1(EPOLL_CLOEXEC);
    o->box.wakefd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (o->epfd < 0 || o->box.wakefd < 0 ||
        epoll_ctl(o->epfd, EPOLL_CTL_ADD, o->box.wakefd, &e) != 0) {
        return -1;
    }
    return epoll_ctl(o->epfd, EPOLL_CTL_ADD, o->tcp->ops->fd(o->tcp), &e);
}

static void name_make(struct mpi_oob *o)
{
    uint8_t low, high;

    o->tcp->ops->name_get(o->tcp, &o->name);
    world_tag(&low, &high);
    o->name.world = low;
    o->name.scope = (uint32_t)high << 24 | (uint32_t)world_rank();
    memcpy(o->box.uuid, o->name.uuid, sizeof(o->box.uuid));
}

__attribute__((visibility("default"))) struct r2_oob *
r2_oob_mpi_create(const struct r2_oob_mpi_params *params, const struct r2_oob_events *ev, char *why,
                  size_t why_len);

struct r2_oob *r2_oob_mpi_create(const struct r2_oob_mpi_params *params,
                                 const struct r2_oob_events *ev, char *why, size_t why_len)
{
    struct r2_oob_events below = {NULL, mpi_tcp_message, mpi_tcp_up, mpi_tcp_down};
    struct mpi_oob *o;

    if (params->abi != R2_OOB_MPI_ABI || params->size != sizeof(*params)) {
        snprintf(why, why_len, R2_OOB_MPI_MODULE " is of another version than the plugin");
        return NULL;
    }
    if (world_state(why, why_len) != WORLD_READY) {
        return NULL;
    }
    o = calloc(1, sizeof(*o));
    if (o == NULL) {
        snprintf(why, why_len, "out of memory");
        return NULL;
    }
    o->base.ops = &mpi_ops;
    o->ev = *ev;
    o->env = *params->env;
    o->params = *params;
    o->hello_timeout = params->hello_timeout_ns ? params->hello_timeout_ns : MPI_HELLO_TIMEOUT;
    o->keepalive = params->keepalive_ns ? params->keepalive_ns : MPI_KEEPALIVE;
    o->epfd = o->box.wakefd = -1;
    below.arg = o;
    o->tcp = params->tcp_create(params->tcp_arg, &below, why, why_len);
    if (o->tcp == NULL) {
        goto err;
    }
    if (wake_open(o) != 0) {
        snprintf(why, why_len, "eventfd: %s", strerror(errno));
        o->tcp->ops->destroy(o->tcp);
        goto err;
    }
    name_make(o);
    world_join(&o->box);
    MPI_INFO_LOG(o, "out-of-band channel: MPI rank %d of %d, on a communicator of its own",
                 world_rank(), world_size());
    return &o->base;

err:
    if (o->box.wakefd >= 0) {
        close(o->box.wakefd);
    }
    if (o->epfd >= 0) {
        close(o->epfd);
    }
    free(o);
    return NULL;
}
