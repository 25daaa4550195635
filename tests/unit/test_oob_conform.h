/*
 * Rig of the conformance tests of out-of-band backends: endpoints of one process, of either
 * backend, and a clock that jumps to the next deadline when nothing moves. Only r2_oob.h is used.
 * An endpoint that sleeps gets no turns: its process has stopped, as far as the others can tell.
 */
#ifndef TEST_OOB_CONFORM_H
#define TEST_OOB_CONFORM_H

#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "oob/oob_mpi_load.h"
#include "base/r2_log.h"
#include "oob/r2_oob.h"
#include "tests/support/times.h"

#define RIG      static __attribute__((unused))
#define SEC      R2_NS_PER_S
#define EPS_MAX  64
#define KEEP_MAX (1 << 20)

enum backend { BY_TCP, BY_MPI };

struct ep {
    struct r2_oob *oob;
    struct r2_oob_name name;
    int number, asleep;
    int up, down, refused, got;
    struct r2_oob_peer *peer; /* of the last upcall */
    uint8_t *keep;
    size_t kept;
    void (*on_message)(struct ep *e, struct r2_oob_peer *p, const void *msg, size_t len);
};

static struct ep eps[EPS_MAX];
static int ep_count;
static uint64_t clock_ns;
static enum backend backend; /* of this run */
static int
    wire_ms; /* how long a socket may take to move, real time; MPI inside of a process takes none */

RIG void told_message(void *arg, struct r2_oob_peer *p, const void *msg, size_t len)
{
    struct ep *e = arg;

    e->got++;
    e->peer = p;
    if (e->kept + len <= KEEP_MAX) {
        if (e->keep == NULL) {
            e->keep = malloc(KEEP_MAX);
        }
        if (len > 0) {
            memcpy(e->keep + e->kept, msg, len);
        }
        e->kept += len;
    }
    if (e->on_message) {
        e->on_message(e, p, msg, len);
    }
}

RIG void told_up(void *arg, struct r2_oob_peer *p)
{
    struct ep *e = arg;

    e->up++;
    e->peer = p;
    ck_assert_int_eq(e->oob->ops->peer_is_up(p), 1);
}

RIG void told_down(void *arg, struct r2_oob_peer *p, int refused)
{
    struct ep *e = arg;

    e->down++;
    e->refused += refused != 0;
    ck_assert_int_eq(e->oob->ops->peer_is_up(p), 0);
}

RIG struct r2_oob *tcp_make(void *arg, const struct r2_oob_events *ev, char *why, size_t why_len)
{
    struct r2_oob_tcp_config cfg = {
        .ifname = "lo", .family = "AF_INET", .hello_timeout_ns = 2 * SEC, .keepalive_ns = SEC};

    return r2_oob_tcp_create(&cfg, ev, why, why_len);
}

RIG struct r2_oob *mpi_make(const struct r2_oob_events *ev, char *why, size_t why_len)
{
    struct r2_env env;
    struct r2_oob_mpi_params p = {.env = &env,
                                  .log = r2_log_write,
                                  .tcp_create = tcp_make,
                                  .hello_timeout_ns = 2 * SEC,
                                  .keepalive_ns = SEC};

    r2_env_default(&env);
    return r2_oob_mpi_load(&p, ev, why, why_len);
}

RIG struct ep *ep_new_of(enum backend b)
{
    struct ep *e = &eps[ep_count];
    struct r2_oob_events ev = {e, told_message, told_up, told_down};
    char why[256] = "";

    e->number = ep_count++;
    e->oob = b == BY_TCP ? tcp_make(NULL, &ev, why, sizeof(why)) : mpi_make(&ev, why, sizeof(why));
    ck_assert_msg(e->oob != NULL, "%s", why);
    ck_assert_str_eq(e->oob->ops->name, b == BY_TCP ? "tcp" : "mpi");
    e->oob->ops->name_get(e->oob, &e->name);
    return e;
}

RIG struct ep *ep_new(void)
{
    return ep_new_of(backend);
}

RIG void ep_kill(struct ep *e)
{
    e->oob->ops->destroy(e->oob);
    e->oob = NULL;
}

RIG struct r2_oob_counters counters(struct ep *e)
{
    struct r2_oob_counters c;

    e->oob->ops->counters(e->oob, &c);
    return c;
}

RIG struct r2_oob_peer *dial(struct ep *from, const struct r2_oob_name *to)
{
    struct r2_oob_peer *p = from->oob->ops->peer_get(from->oob, to);

    ck_assert_ptr_nonnull(p);
    return p;
}

RIG int say(struct ep *e, struct r2_oob_peer *p, const char *text)
{
    return e->oob->ops->send(p, text, strlen(text));
}

RIG int poll_all(int timeout_ms)
{
    struct pollfd p[EPS_MAX];
    int n = 0;

    for (int i = 0; i < ep_count; i++) {
        if (eps[i].oob != NULL && !eps[i].asleep) {
            p[n++] = (struct pollfd){.fd = eps[i].oob->ops->fd(eps[i].oob), .events = POLLIN};
        }
    }
    return poll(p, (nfds_t)n, timeout_ms);
}

RIG uint64_t turn(void)
{
    uint64_t next = UINT64_MAX, t;

    for (int i = 0; i < ep_count; i++) {
        if (eps[i].oob == NULL || eps[i].asleep) {
            continue;
        }
        t = eps[i].oob->ops->progress(eps[i].oob, clock_ns);
        if (t < next) {
            next = t;
        }
    }
    r2_log_flush();
    return next;
}

/* Turns until *what >= want; 0 after @limit of the virtual clock. */
RIG int run_until(const int *what, int want, uint64_t limit)
{
    uint64_t end = clock_ns + limit;

    for (;;) {
        uint64_t next = turn();
        if (*what >= want) {
            return 1;
        }
        if (next <= clock_ns || poll_all(wire_ms) > 0) {
            continue;
        }
        if (next > end) {
            clock_ns = end;
            return 0;
        }
        clock_ns = next;
    }
}

static const int never;

RIG void run_for(uint64_t time)
{
    (void)run_until(&never, 1, time);
}

/* Until what is under way has arrived: every way of either backend is through in a tenth of this.
 */
RIG void settle(void)
{
    run_for(50 * MS);
}

#define UNTIL(what, want)                                                                          \
    ck_assert_msg(run_until(&(what), want, 30 * SEC), #what " is %d, not " #want, (what))

RIG void pattern(uint8_t *b, size_t len, int n)
{
    for (size_t i = 0; i < len; i++) {
        b[i] = (uint8_t)(n * 31 + (int)i);
    }
}

RIG void fresh(void)
{
    struct r2_env env;

    r2_env_default(&env);
    clock_ns = env.now_ns(env.arg);
    wire_ms = backend == BY_TCP ? 20 : 0;
}

RIG void end_all(void)
{
    for (int i = 0; i < ep_count; i++) {
        if (eps[i].oob != NULL) {
            eps[i].oob->ops->destroy(eps[i].oob);
        }
        free(eps[i].keep);
    }
    memset(eps, 0, sizeof(eps));
    ep_count = 0;
}

#endif
