#include "tools/r2_perf/boot.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/r2_perf/boot_net.h"
#include "tools/r2_perf/util.h"

/* For a rank whose process stands still, or whose host is gone. Shorter than the grace of watch.c.
 */
#define BOOT_SETTLE_NS (2 * R2_NS_PER_S)

/* No rank leaves a barrier so much later than another. */
#define BOOT_CLOCK_NS (60 * R2_NS_PER_S)

/* BOOT_KNOWN: to rank 0, "I know of the failure"; from rank 0, "all know of it" */
enum boot_type { BOOT_GATHER = 1, BOOT_RESULT, BOOT_FAIL, BOOT_BYE, BOOT_KNOWN };

struct boot_head {
    uint32_t type; /* enum boot_type */
    uint32_t code; /* BOOT_FAIL: enum perf_exit */
    uint64_t bytes;
};

/* One socket with the thread that reads it. At rank 0 one per other rank, elsewhere the one to rank
 * 0. */
struct boot_peer {
    struct boot *boot;
    int rank, fd;
    pthread_t reader;
    _Atomic bool running; /* has a reader and a socket: set before the thread starts, looked at by
                             any thread */
    bool bye;             /* under lock: its end of stream is no failure */
    bool knows; /* under lock: that the run has failed; rank 0's peers of a rank, else of all ranks
                 */
    char *data; /* under lock: a message that waits to be taken; at most one, as each call waits for
                   its answer */
    size_t bytes;
    bool ready;
};

/* In memory that all ranks map. A rank adds itself to @arrived; the last of a round opens the next
 * by @round. */
struct boot_shared_barrier {
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) _Atomic uint32_t round; /* release by the last rank, acquire by those who wait */
};

struct boot {
    struct boot_place place;
    uint64_t timeout_ns;
    struct board *board;
    _Atomic bool failed; /* release after board is written; acquire */
    pthread_mutex_t lock,
        write_lock; /* lock: peers' data; write_lock: whole messages on sockets, never both */
    pthread_cond_t cond;
    struct boot_peer peers[BOOT_RANKS_MAX];
    struct boot_shared_barrier *shared;
};

static int boot_send(struct boot *b, int fd, uint32_t type, uint32_t code, const void *data,
                     size_t bytes)
{
    struct boot_head head = {.type = type, .code = code, .bytes = bytes};
    pthread_mutex_lock(&b->write_lock);
    int rc = boot_net_write(fd, &head, sizeof(head));
    rc = rc == 0 && bytes ? boot_net_write(fd, data, bytes) : rc;
    pthread_mutex_unlock(&b->write_lock);
    return rc;
}

/* Under lock. */
static bool boot_all_know(const struct boot *b)
{
    for (int i = 0; i < BOOT_RANKS_MAX; i++) {
        if (b->peers[i].running && !b->peers[i].knows) {
            return false;
        }
    }
    return true;
}

/* Rank 0 tells everybody; others tell rank 0, which passes it on. */
static void boot_fail_spread(struct boot *b, const struct boot_peer *from)
{
    for (int i = 0; i < BOOT_RANKS_MAX; i++) {
        struct boot_peer *p = &b->peers[i];
        if (p->running && p != from) {
            boot_send(b, p->fd, BOOT_FAIL, (uint32_t)b->board->code, b->board->text,
                      strlen(b->board->text) + 1);
        }
    }
}

/* @p needs no more telling. At rank 0 the last such rank lets all go on. Without a
 * failure that is when all others have ended: there is nobody to tell. */
static void boot_peer_known(struct boot_peer *p)
{
    struct boot *b = p->boot;
    pthread_mutex_lock(&b->lock);
    bool news = !p->knows;
    p->knows = true;
    bool all = boot_all_know(b);
    pthread_cond_broadcast(&b->cond);
    pthread_mutex_unlock(&b->lock);
    for (int i = 0; b->place.rank == 0 && news && all && i < BOOT_RANKS_MAX; i++) {
        if (b->peers[i].running) {
            boot_send(b, b->peers[i].fd, BOOT_KNOWN, 0, NULL, 0);
        }
    }
}

static void boot_fail_note(struct boot *b, int code, const char *text, const struct boot_peer *from)
{
    board_error_post(b->board, code, text);
    while (!board_error_seen(b->board)) {
        sched_yield(); /* another process is between taking the board and writing it: a few
                          instructions */
    }
    bool first = !atomic_exchange_explicit(&b->failed, true, memory_order_acq_rel);
    pthread_mutex_lock(&b->lock);
    pthread_cond_broadcast(&b->cond);
    pthread_mutex_unlock(&b->lock);
    if (first) {
        boot_fail_spread(b, from);
    }
}

void boot_fail(struct boot *b, int code, const char *text)
{
    boot_fail_note(b, code, text, NULL);
}

bool boot_fail_settle(struct boot *b)
{
    uint64_t end = util_now_ns() + BOOT_SETTLE_NS;
    struct timespec until = {.tv_sec = (time_t)(end / R2_NS_PER_S),
                             .tv_nsec = (long)(end % R2_NS_PER_S)};
    int rc = 0;
    pthread_mutex_lock(&b->lock);
    while (!boot_all_know(b) && rc == 0) {
        rc = pthread_cond_timedwait(&b->cond, &b->lock, &until);
    }
    bool all = boot_all_know(b);
    pthread_mutex_unlock(&b->lock);
    return all;
}

bool boot_failed(const struct boot *b)
{
    return atomic_load_explicit(&b->failed, memory_order_acquire);
}

const struct board *boot_error(const struct boot *b)
{
    return b->board;
}

/* The launcher knows how a process died; it gets a moment to say so before we say less. */
static void boot_peer_lost(struct boot_peer *p)
{
    struct boot *b = p->boot;
    char text[128];
    for (int i = 0; i < 50 && b->place.board_fd >= 0 && !board_error_seen(b->board); i++) {
        poll(NULL, 0, 10);
    }
    snprintf(text, sizeof(text), "rank %d went away without a message", p->rank);
    boot_fail_note(b, PERF_NET, text, p);
}

static void boot_peer_failed(struct boot_peer *p, const struct boot_head *head)
{
    char text[BOARD_TEXT];
    size_t n = util_size_min(head->bytes, sizeof(text));
    if (boot_net_read(p->fd, text, n) == 0 && n) {
        text[n - 1] = '\0';
        boot_fail_note(p->boot, (int)head->code, text, p);
        if (p->boot->place.rank == 0) {
            boot_peer_known(p);
        } else {
            boot_send(p->boot, p->fd, BOOT_KNOWN, 0, NULL, 0);
        }
    }
}

/* False when the stream is over. */
static bool boot_peer_read(struct boot_peer *p)
{
    struct boot *b = p->boot;
    struct boot_head head;
    if (boot_net_read(p->fd, &head, sizeof(head)) != 0) {
        return false;
    }
    if (head.type == BOOT_FAIL) {
        boot_peer_failed(p, &head);
        return true;
    }
    if (head.type == BOOT_KNOWN) {
        boot_peer_known(p);
        return true;
    }
    char *data = head.bytes ? util_mem_alloc(1, head.bytes) : NULL;
    if (head.bytes && boot_net_read(p->fd, data, head.bytes) != 0) {
        free(data);
        return false;
    }
    pthread_mutex_lock(&b->lock);
    if (head.type == BOOT_BYE) {
        p->bye = true;
    } else {
        free(p->data);
        p->data = data;
        p->bytes = head.bytes;
        p->ready = true;
    }
    pthread_cond_broadcast(&b->cond);
    pthread_mutex_unlock(&b->lock);
    return true;
}

static void *boot_peer_main(void *arg)
{
    struct boot_peer *p = arg;
    while (boot_peer_read(p)) {
    }
    pthread_mutex_lock(&p->boot->lock);
    bool expected = p->bye;
    pthread_mutex_unlock(&p->boot->lock);
    if (!expected && !boot_failed(p->boot)) {
        boot_peer_lost(p);
    }
    boot_peer_known(p);
    return NULL;
}

static int boot_peer_start(struct boot *b, int rank, int fd)
{
    struct boot_peer *p = &b->peers[rank];
    p->boot = b;
    p->rank = rank;
    p->fd = fd;
    p->running = true;
    boot_net_keep(fd, b->timeout_ns);
    if (pthread_create(&p->reader, NULL, boot_peer_main, p) != 0) {
        p->running = false;
        return -1;
    }
    return 0;
}

/* A connection that does not show the key, or a rank that is there already, is dropped. */
static int boot_root_admit(struct boot *b, int fd)
{
    uint64_t key;
    uint32_t rank;
    struct timeval limit = {.tv_sec = 5}, none = {0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (boot_net_read(fd, &key, sizeof(key)) != 0 || key != b->place.key ||
        boot_net_read(fd, &rank, sizeof(rank)) != 0 || rank == 0 ||
        rank >= (uint32_t)b->place.nranks || b->peers[rank].running) {
        close(fd);
        return 0;
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none));
    return boot_peer_start(b, (int)rank, fd) == 0 ? 1 : -1;
}

static int boot_root_open(struct boot *b, uint64_t deadline_ns, char *error, size_t error_bytes)
{
    int fd = boot_net_listen(&b->place, error, error_bytes);
    int missing = b->place.nranks - 1;
    while (fd >= 0 && missing > 0) {
        int conn = boot_net_accept(fd, deadline_ns);
        if (conn < 0) {
            snprintf(error, error_bytes, "%d of %d ranks did not report to rank 0 in time", missing,
                     b->place.nranks);
            break;
        }
        missing -= boot_root_admit(b, conn) == 1;
    }
    if (fd >= 0) {
        close(fd);
    }
    if (b->place.rendezvous[0] && !b->place.root[0]) {
        unlink(b->place.rendezvous);
    }
    return fd >= 0 && missing == 0 ? 0 : -1;
}

static int boot_leaf_open(struct boot *b, uint64_t deadline_ns, char *error, size_t error_bytes)
{
    uint32_t rank = (uint32_t)b->place.rank;
    int fd = boot_net_connect(&b->place, deadline_ns, error, error_bytes);
    if (fd < 0) {
        return -1;
    }
    if (boot_net_write(fd, &rank, sizeof(rank)) != 0 || boot_peer_start(b, 0, fd) != 0) {
        snprintf(error, error_bytes, "rank %d was refused by rank 0", b->place.rank);
        return -1;
    }
    return 0;
}

int boot_open(struct boot **out, const struct boot_place *place, uint64_t timeout_ns, char *error,
              size_t error_bytes)
{
    struct boot *b = util_mem_alloc(1, sizeof(*b));
    b->place = *place;
    b->timeout_ns = timeout_ns;
    pthread_mutex_init(&b->lock, NULL);
    pthread_mutex_init(&b->write_lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&b->cond, &attr);
    pthread_condattr_destroy(&attr);
    b->board = board_map(place->board_fd);
    *out = b;
    if (!b->board) {
        snprintf(error, error_bytes, "the launcher's page cannot be mapped");
        return -1;
    }
    uint64_t deadline = util_now_ns() + timeout_ns;
    return place->rank == 0 ? boot_root_open(b, deadline, error, error_bytes)
                            : boot_leaf_open(b, deadline, error, error_bytes);
}

/* Rank 0's end of the stream is the others' signal to end, so each side waits for the other's
 * good-bye. No socket is closed before the last reader has ended: readers of rank 0 write to all.
 */
int boot_close(struct boot *b)
{
    for (int i = 0; i < BOOT_RANKS_MAX; i++) {
        if (b->peers[i].running) {
            boot_send(b, b->peers[i].fd, BOOT_BYE, 0, NULL, 0);
            shutdown(b->peers[i].fd, SHUT_WR);
        }
    }
    for (int i = 0; i < BOOT_RANKS_MAX; i++) {
        struct boot_peer *p = &b->peers[i];
        if (p->running) {
            if (boot_failed(b)) {
                shutdown(p->fd, SHUT_RDWR);
            }
            pthread_join(p->reader, NULL);
        }
    }
    for (int i = 0; i < BOOT_RANKS_MAX; i++) {
        struct boot_peer *p = &b->peers[i];
        if (p->running) {
            close(p->fd);
            free(p->data);
        }
    }
    int code = boot_failed(b) ? b->board->code : PERF_OK;
    free(b);
    return code;
}

/* Take the message of @p; waits for it. Its bytes must be @want. */
static int boot_peer_take(struct boot *b, struct boot_peer *p, void *dst, size_t want)
{
    pthread_mutex_lock(&b->lock);
    while (!p->ready && !boot_failed(b)) {
        pthread_cond_wait(&b->cond, &b->lock);
    }
    bool ready = p->ready;
    size_t bytes = p->bytes;
    if (ready && bytes == want && want) {
        memcpy(dst, p->data, want);
    }
    p->ready = false;
    pthread_mutex_unlock(&b->lock);
    if (ready && bytes != want) {
        boot_fail(b, PERF_INTERNAL,
                  "ranks disagree about what to exchange: do all run with the same options?");
    }
    return ready && bytes == want ? 0 : -1;
}

int boot_allgather(struct boot *b, void *all, size_t each)
{
    int n = b->place.nranks;
    char *base = all;
    if (b->place.rank != 0) {
        if (boot_failed(b) || boot_send(b, b->peers[0].fd, BOOT_GATHER, 0,
                                        base + (size_t)b->place.rank * each, each)) {
            return -1;
        }
        return boot_peer_take(b, &b->peers[0], all, each * (size_t)n);
    }
    for (int r = 1; r < n; r++) {
        if (boot_peer_take(b, &b->peers[r], base + (size_t)r * each, each) != 0) {
            return -1;
        }
    }
    for (int r = 1; r < n; r++) {
        if (boot_send(b, b->peers[r].fd, BOOT_RESULT, 0, all, each * (size_t)n) != 0) {
            return -1;
        }
    }
    return boot_failed(b) ? -1 : 0;
}

/* What ranks exchange to agree. */
struct boot_clock {
    uint64_t machine, now_ns;
};

/* A clock that is further away is another one: of a time namespace, say. */
static uint64_t boot_clock_first(const struct boot_clock *all, int n, int rank)
{
    uint64_t own = all[rank].now_ns, first = own;
    for (int i = 0; i < n; i++) {
        uint64_t at = all[i].now_ns;
        bool same = all[i].machine == all[rank].machine && at < own && own - at < BOOT_CLOCK_NS;
        first = same && at < first ? at : first;
    }
    return first;
}

int boot_clock_agree(struct boot *b, uint64_t *t0_ns)
{
    struct boot_clock all[BOOT_RANKS_MAX];
    int rank = b->place.rank;
    all[rank] = (struct boot_clock){.machine = util_machine_id(), .now_ns = util_now_ns()};
    if (boot_allgather(b, all, sizeof(*all)) != 0) {
        return -1;
    }
    *t0_ns = boot_clock_first(all, b->place.nranks, rank);
    return 0;
}

void boot_barrier_share(struct boot *b, void *page)
{
    b->shared = page;
}

int boot_barrier(struct boot *b)
{
    char none[BOOT_RANKS_MAX];
    struct boot_shared_barrier *s = b->shared;
    if (!s) {
        return boot_allgather(b, none, 0);
    }
    uint32_t round = atomic_load_explicit(&s->round, memory_order_acquire);
    if (atomic_fetch_add_explicit(&s->arrived, 1, memory_order_acq_rel) + 1 ==
        (uint32_t)b->place.nranks) {
        atomic_store_explicit(&s->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&s->round, round + 1, memory_order_release);
        return 0;
    }
    while (atomic_load_explicit(&s->round, memory_order_acquire) == round) {
        if (boot_failed(b)) {
            return -1;
        }
        sched_yield();
    }
    return 0;
}
