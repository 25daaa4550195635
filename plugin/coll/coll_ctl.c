#include "coll_ctl.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/r2_config.h"
#include "base/r2_log.h"
#include "base/r2_thread.h"
#include "base/r2_time.h"
#include "coll_host.h"
#include "coll_hub.h"
#include "coll_make.h"
#include "coll_tuner.h"
#include "oob/tcp/oob_tcp.h"

#define SETTLE_NS (2 * R2_NS_PER_S)
#define MAKE_NS   (120 * R2_NS_PER_S)
#define WAIT_NS   (2 * R2_NS_PER_S)
#define PAUSE_NS  (10 * R2_NS_PER_S)
#define REPEAT_NS R2_MS(50)
#define FACTS_NS  R2_MS(200) /* facts that are not confirmed are sent again */
#define LEAVE_NS  (30 * R2_NS_PER_S)
/* An operation waits for a decision of a hub that cannot be reached: well beyond WAIT_NS, and what
 * an out-of-band channel takes to come back. */
#define LOST_NS (30 * R2_NS_PER_S)

static struct {
    enum coll_policy policy; /* const once started */
    bool has_tree;           /* NCCL may use it */
    uint64_t host;
    struct r2_oob *oob; /* control thread, but for its name */
    struct r2_oob_name name;
    struct coll_hubs *hubs;
    int epoll, wake;
    pthread_mutex_t lock; /* of the list: any thread adds entries, the control thread frees them */
    struct coll_user *first;
    /* Each by itself: facts of a moment, soon the next. */
    _Atomic uint32_t nics, usable, used, mbps;
} ctl = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void kick(void)
{
    uint64_t one = 1;

    if (write(ctl.wake, &one, sizeof(one)) < 0) {
        return; /* EAGAIN: it is awake */
    }
}

/* --- control thread: what comes --- */

static bool is_for_hub(const struct place_note *note)
{
    return note->kind == PLACE_NOTE_FACTS ||
           (note->kind == PLACE_NOTE_MSG &&
            (note->msg.kind == PLACE_ANSWER || note->msg.kind == PLACE_DONE));
}

static void send_note(struct r2_oob_peer *to, const struct place_note *note)
{
    uint8_t out[PLACE_NOTE_MAX];

    ctl.oob->ops->send(to, out, place_note_pack(note, out)); /* lost: it is repeated */
}

/* A rank of this process that is served by @peer. */
static const char *comm_take(struct r2_oob_peer *peer, const struct place_note *note)
{
    struct place_note reply;
    struct coll_user *u;

    pthread_mutex_lock(&ctl.lock);
    for (u = ctl.first; u != NULL; u = u->next) {
        if (u->comm.meet.key == note->key && (uint32_t)u->comm.rank == note->rank &&
            u->hub == peer) {
            break;
        }
    }
    pthread_mutex_unlock(&ctl.lock); /* only this thread takes entries out */
    if (u == NULL) {
        return NULL; /* it has been left */
    }
    if (coll_comm_take(&u->comm, note, &reply)) {
        send_note(peer, &reply);
    }
    return NULL;
}

static void on_message(void *arg, struct r2_oob_peer *peer, const void *msg, size_t len)
{
    struct place_note note;
    const char *wrong = place_note_parse(msg, len, &note);

    if (wrong == NULL) {
        wrong = is_for_hub(&note)
                    ? coll_hub_take(ctl.hubs, peer, &note, r2_clock_ns(CLOCK_MONOTONIC))
                    : comm_take(peer, &note);
    }
    if (wrong != NULL) {
        R2_WARN("placement: a message of %s is dropped: %s", ctl.oob->ops->peer_str(peer), wrong);
    }
}

/* What is not confirmed is sent again in any case: nothing is lost by a channel that was. */
static void on_up(void *arg, struct r2_oob_peer *peer)
{
}

static void on_down(void *arg, struct r2_oob_peer *peer, int refused)
{
    coll_hub_down(ctl.hubs, peer, refused != 0, r2_clock_ns(CLOCK_MONOTONIC));
    pthread_mutex_lock(&ctl.lock);
    for (struct coll_user *u = ctl.first; refused && u != NULL; u = u->next) {
        if (u->hub == peer) {
            coll_comm_lost(&u->comm);
        }
    }
    pthread_mutex_unlock(&ctl.lock);
}

/* --- control thread: what is due --- */

/* Nobody knows when its host comes back, and the application's thread waits in its operation. */
static uint64_t wait_check(struct coll_user *u, uint64_t now)
{
    if (u->hub == NULL || !coll_comm_is_prepared(&u->comm) || ctl.oob->ops->peer_is_up(u->hub)) {
        u->prepared = 0;
        return UINT64_MAX;
    }
    u->prepared = u->prepared != 0 ? u->prepared : now;
    if (now - u->prepared >= LOST_NS) {
        R2_WARN("placement: %s cannot be reached, and an operation waits for its decision",
                ctl.oob->ops->peer_str(u->hub));
        coll_comm_lost(&u->comm);
        return UINT64_MAX;
    }
    return u->prepared + LOST_NS;
}

static uint64_t facts_send(struct coll_user *u, uint64_t now)
{
    struct place_note note;

    if (!coll_comm_facts(&u->comm, &note)) {
        return UINT64_MAX;
    }
    if (note.facts.seq != u->sent_seq || now >= u->next_facts) {
        u->sent_seq = note.facts.seq;
        u->next_facts = now + FACTS_NS;
        if (u->hub != NULL) {
            send_note(u->hub, &note);
        }
    }
    return u->next_facts;
}

static uint64_t user_turn(struct coll_user *u, uint64_t now)
{
    enum coll_work work;
    int slot;

    if (u->hub == NULL) {
        u->hub = ctl.oob->ops->peer_get(ctl.oob, &u->comm.meet.hub);
        if (u->hub == NULL) {
            coll_comm_lost(&u->comm);
        }
    }
    coll_comm_nics(&u->comm, ctl.nics, ctl.usable, ctl.used, ctl.mbps);
    while ((work = coll_comm_work(&u->comm, &slot)) != COLL_WORK_NONE) {
        coll_make_begin(u, slot, work);
    }
    return r2_earlier(facts_send(u, now), wait_check(u, now));
}

/* Entries that have been left; none of them has a thread. */
static void users_free(void)
{
    struct coll_user **at = &ctl.first, *u;

    pthread_mutex_lock(&ctl.lock);
    while ((u = *at) != NULL) {
        if (!u->left || u->refs > 0) {
            at = &u->next;
            continue;
        }
        *at = u->next;
        if (u->hub != NULL) {
            ctl.oob->ops->peer_put(u->hub);
        }
        coll_comm_close(&u->comm);
        free(u);
    }
    pthread_mutex_unlock(&ctl.lock);
}

static uint64_t turn(uint64_t now)
{
    uint64_t next = coll_hub_turn(ctl.hubs, now);
    struct coll_user *u;

    users_free();
    pthread_mutex_lock(&ctl.lock);
    u = ctl.first;
    pthread_mutex_unlock(&ctl.lock);
    for (; u != NULL; u = u->next) {
        next = r2_earlier(next, user_turn(u, now));
    }
    return next;
}

static void *run(void *arg)
{
    struct epoll_event event;
    uint64_t count;

    for (;;) {
        uint64_t now = r2_clock_ns(CLOCK_MONOTONIC);
        uint64_t next = ctl.oob->ops->progress(ctl.oob, now);
        int ms = -1;

        next = r2_earlier(next, turn(now));
        r2_log_flush();
        now = r2_clock_ns(CLOCK_MONOTONIC);
        if (next != UINT64_MAX) {
            ms = (int)r2_earlier((r2_elapsed(next, now) + R2_NS_PER_MS - 1) / R2_NS_PER_MS, 60000);
        }
        if (epoll_wait(ctl.epoll, &event, 1, ms) > 0 && event.data.fd == ctl.wake &&
            read(ctl.wake, &count, sizeof(count)) < 0) {
            continue; /* somebody else's wake: none */
        }
    }
    return NULL;
}

/* --- start --- */

static void to_stderr(enum r2_log_level level, const char *file, int line, const char *msg)
{
    const char *debug = getenv("NCCL_DEBUG");
    bool tells =
        debug != NULL && (strcasecmp(debug, "INFO") == 0 || strcasecmp(debug, "TRACE") == 0);

    if (level == R2_LOG_WARN || (tells && strstr(msg, "placement: ") != NULL)) {
        fprintf(stderr, "libr2coll.so: %s\n", msg);
    }
}

static int id_make(uint8_t id[PLACE_ID_BYTES])
{
    struct coll_id made;

    if (coll_real_get()->get_unique_id(&made) != COLL_SUCCESS) {
        return -1;
    }
    memcpy(id, made.bytes, sizeof(made.bytes));
    return 0;
}

static bool watch(int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    return fd >= 0 && epoll_ctl(ctl.epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* NCCL_ALGO: a list of what NCCL may use, or, behind '^', of what not; by parts of collectives,
 * too, which are taken for all of them. */
static bool algo_allows(const char *algo)
{
    const char *list = getenv("NCCL_ALGO");

    return list == NULL || list[0] == '\0' ||
           (strcasestr(list, algo) != NULL) == (strchr(list, '^') == NULL);
}

static bool endpoint_open(const struct r2_config *config)
{
    const struct r2_oob_events events = {NULL, on_message, on_up, on_down};
    struct r2_oob_tcp_config tcp = {.ifname = config->oob_ifname[0] != '\0' ? config->oob_ifname
                                                                            : config->socket_ifname,
                                    .family = config->socket_family};
    struct coll_hub_conf hub = {.job = {.only_advises = ctl.policy == COLL_ADVISE,
                                        .no_ring = !algo_allows("ring"),
                                        .settle_ns = SETTLE_NS,
                                        .make_ns = MAKE_NS,
                                        .wait_ns = WAIT_NS,
                                        .pause_ns = PAUSE_NS,
                                        .repeat_ns = REPEAT_NS},
                                .id_make = id_make};
    char why[256] = "out of memory";

    ctl.oob = r2_oob_tcp_create(&tcp, &events, why, sizeof(why));
    hub.oob = ctl.oob;
    ctl.hubs = ctl.oob != NULL ? coll_hubs_new(&hub) : NULL;
    ctl.epoll = epoll_create1(EPOLL_CLOEXEC);
    ctl.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ctl.hubs == NULL || ctl.epoll < 0 || !watch(ctl.wake) ||
        !watch(ctl.oob->ops->fd(ctl.oob))) {
        R2_WARN("placement: off: %s", ctl.hubs == NULL ? why : strerror(errno));
        return false;
    }
    ctl.oob->ops->name_get(ctl.oob, &ctl.name);
    return true;
}

static bool thread_start(void)
{
    pthread_t thread;
    int rc = r2_thread_start(&thread, run, NULL);

    if (rc != 0) {
        R2_WARN("placement: off: no thread: %s", strerror(rc));
        return false;
    }
    pthread_setname_np(thread, "r2coll");
    pthread_detach(thread);
    return true;
}

static bool started; /* const once coll_ctl_start() has returned; in a child of fork() false */

static void fork_before(void)
{
    pthread_mutex_lock(&ctl.lock);
}

static void fork_parent(void)
{
    pthread_mutex_unlock(&ctl.lock);
}

/* It has no control thread, and NCCL's communicators of its parent are not its own. */
static void fork_child(void)
{
    pthread_mutex_init(&ctl.lock, NULL);
    ctl.first = NULL;
    started = false;
}

static void start(void)
{
    struct r2_config_sources sources = {NULL};
    struct r2_config config;

    r2_log_sink_set(to_stderr);
    r2_config_load(&config, &sources);
    ctl.policy = (enum coll_policy)config.place;
    ctl.host = coll_host_key(config.hostid);
    ctl.has_tree = algo_allows("tree");
    started = ctl.policy != COLL_OFF && coll_real_get() != NULL && endpoint_open(&config) &&
              thread_start() && pthread_atfork(fork_before, fork_parent, fork_child) == 0;
    if (started && ctl.policy == COLL_ON && !coll_real_defers_aborts()) {
        R2_WARN("placement: NCCL is none of 2.28 to 2.30: no communicator of another order is "
                "made");
    }
    r2_log_flush();
}

/*
 * NCCL takes its tuner, which makes shadows use their tree, from the network's library where that
 * is named as the tuner's. Only where shadows may be made: a tuner of the user's, libnccl-tuner.so,
 * is not found any more then. Before the program begins: nobody else reads the environment yet.
 */
__attribute__((constructor)) static void tuner_name(void)
{
    struct r2_config_sources sources = {NULL};
    struct r2_config config;
    char file[4096];

    r2_config_load(&config, &sources);
    if (config.place == COLL_ON && coll_tuner_file(getenv("NCCL_NET_PLUGIN"), file, sizeof(file))) {
        setenv("NCCL_TUNER_PLUGIN", file, 0);
    }
}

bool coll_ctl_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, start);
    return started;
}

/* --- communicators --- */

bool coll_ctl_meet(struct place_meet *meet)
{
    meet->hub = ctl.name;
    meet->key = coll_hub_key(ctl.hubs);
    return meet->key != 0;
}

static bool marks_make(struct coll_user *u)
{
    for (int i = 0; i <= PLACE_HELD; i++) {
        if (coll_cuda_get()->event_create(&u->mark[i].event, COLL_CUDA_EVENT_NO_TIMING) != 0) {
            return false;
        }
    }
    return true;
}

static void marks_free(struct coll_user *u)
{
    for (int i = 0; i <= PLACE_HELD; i++) {
        if (u->mark[i].event != NULL) {
            coll_cuda_get()->event_destroy(u->mark[i].event);
        }
    }
}

struct coll_user *coll_ctl_enter(void *user, const struct coll_id *id, int ranks, int rank,
                                 const struct coll_config *config, void *context)
{
    struct place_meet meet;
    struct coll_user *u;

    if (!coll_ctl_start() || ranks < 2 || !place_meet_get(id->bytes, &meet)) {
        return NULL;
    }
    u = calloc(1, sizeof(*u));
    if (u == NULL) {
        return NULL;
    }
    coll_comm_init(&u->comm, user, &meet, rank, ranks, ctl.host, kick);
    u->context = context;
    u->config = *config;
    u->comm.only_advises = ctl.policy != COLL_ON || config->blocking == 0 || !ctl.has_tree ||
                           !coll_real_defers_aborts() || coll_cuda_get() == NULL || !marks_make(u);
    pthread_mutex_lock(&ctl.lock);
    u->next = ctl.first;
    ctl.first = u;
    pthread_mutex_unlock(&ctl.lock);
    kick();
    return u;
}

struct coll_user *coll_ctl_get(void *user, bool ended)
{
    struct coll_user *u;

    pthread_mutex_lock(&ctl.lock);
    u = ctl.first;
    while (u != NULL && (u->comm.user != user || u->left || u->aborted || (u->kept && !ended))) {
        u = u->next;
    }
    if (u != NULL) {
        u->refs++;
    }
    pthread_mutex_unlock(&ctl.lock);
    return u;
}

void coll_ctl_put(struct coll_user *u)
{
    bool last;

    pthread_mutex_lock(&ctl.lock);
    last = --u->refs == 0 && u->left;
    pthread_mutex_unlock(&ctl.lock);
    if (last) {
        kick();
    }
}

bool coll_ctl_abort(struct coll_user *u)
{
    bool first;

    pthread_mutex_lock(&ctl.lock);
    first = !u->aborted;
    u->aborted = true; /* what NCCL makes next may be at its address */
    pthread_mutex_unlock(&ctl.lock);
    if (first) {
        coll_comm_end(&u->comm, true, 0);
    }
    return first;
}

void coll_ctl_leave(struct coll_user *u, bool abort)
{
    bool over = coll_comm_end(&u->comm, abort, LEAVE_NS), alone;

    if (!over) {
        R2_WARN("placement: a communicator of another order could not be freed in time");
    }
    pthread_mutex_lock(&ctl.lock);
    u->left = over;
    u->kept = !over; /* an abort may come, and free it */
    alone = u->refs == 1;
    pthread_mutex_unlock(&ctl.lock);
    if (over && alone) { /* here, where CUDA's context is current; else they are leaked */
        marks_free(u);
    }
    kick();
}

void coll_ctl_nics(unsigned nics, unsigned usable, unsigned used, unsigned mbps)
{
    bool same = ctl.nics == nics && ctl.usable == usable && ctl.used == used && ctl.mbps == mbps;

    ctl.nics = nics;
    ctl.usable = usable;
    ctl.used = used;
    ctl.mbps = mbps;
    if (started && !same) {
        kick();
    }
}
