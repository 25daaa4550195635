/*
 * Rig for tests of the TCP out-of-band channel: endpoints of one process, a wire between them that
 * can be cut, and a clock.
 *
 * Sockets are real, time is not: when nothing moves any more, the clock jumps to the next deadline,
 * so that minutes of silence take milliseconds.
 */
#ifndef OOB_RIG_H
#define OOB_RIG_H

#define RIG static __attribute__((unused))

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "oob/tcp/oob_tcp.h"
#include "base/r2_log.h"
#include "tests/support/times.h"

#define SEC R2_NS_PER_S

#define EPS_MAX  64
#define KEEP_MAX (1 << 20)

/* One endpoint and everything it was told. */
struct ep {
    struct r2_oob *oob;
    struct r2_oob_name name;
    int up, down, refused, got, said;
    struct r2_oob_peer *peer; /* of the last upcall */
    uint8_t *keep;            /* all messages, one behind the other */
    size_t kept;
    void (*on_message)(struct ep *e, struct r2_oob_peer *p, const void *msg, size_t len);
    void (*on_up)(struct ep *e, struct r2_oob_peer *p);
    int number;
};

static struct ep eps[EPS_MAX];
static int ep_count;
static uint64_t clock_ns;
static char warns[4096], infos[16384]; /* what the log was told, a line each */

RIG void sink(enum r2_log_level level, const char *file, int line, const char *msg)
{
    char *text = level == R2_LOG_WARN ? warns : infos;
    size_t size = level == R2_LOG_WARN ? sizeof(warns) : sizeof(infos), used = strlen(text);

    if (level == R2_LOG_WARN || level == R2_LOG_INFO) {
        snprintf(text + used, size - used, "%s\n", msg);
    }
}

/* Lines of @text, a piece of the log, that have @words. */
RIG int lines_with(const char *text, const char *words)
{
    int n = 0;

    r2_log_flush();
    for (; (text = strstr(text, words)) != NULL && (text = strchr(text, '\n')) != NULL; text++) {
        n++;
    }
    return n;
}

RIG void told_message(void *arg, struct r2_oob_peer *p, const void *msg, size_t len)
{
    struct ep *e = arg;

    e->got++;
    e->peer = p;
    if (e->kept + len <= KEEP_MAX) {
        if (e->keep == NULL) {
            e->keep = malloc(KEEP_MAX);
        }
        memcpy(e->keep + e->kept, msg, len);
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
    if (e->on_up) {
        e->on_up(e, p);
    }
}

RIG void told_down(void *arg, struct r2_oob_peer *p, int refused)
{
    struct ep *e = arg;

    e->down++;
    e->refused += refused != 0;
    ck_assert_int_eq(e->oob->ops->peer_is_up(p), 0);
}

RIG struct ep *ep_new(void)
{
    struct ep *e = &eps[ep_count];
    struct r2_oob_events ev = {e, told_message, told_up, told_down};
    struct r2_oob_tcp_config cfg = {
        .ifname = "lo", .family = "AF_INET", .hello_timeout_ns = 2 * SEC, .keepalive_ns = SEC};
    char why[256];

    e->number = ep_count++;
    e->oob = r2_oob_tcp_create(&cfg, &ev, why, sizeof(why));
    ck_assert_msg(e->oob != NULL, "%s", why);
    e->oob->ops->name_get(e->oob, &e->name);
    return e;
}

RIG struct tcp_oob *inside(struct ep *e)
{
    return (struct tcp_oob *)e->oob;
}

RIG struct r2_oob_counters counters(struct ep *e)
{
    struct r2_oob_counters c;

    e->oob->ops->counters(e->oob, &c);
    return c;
}

/* Two endpoints, the first with the smaller uuid (or the larger). */
RIG void ep_pair(struct ep **a, struct ep **b, int smaller_first)
{
    struct ep *x = ep_new(), *y = ep_new();
    int x_first = (oob_uuid_compare(x->name.uuid, y->name.uuid) < 0) == smaller_first;

    *a = x_first ? x : y;
    *b = x_first ? y : x;
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

/* A wire between a dialler and an endpoint that can be cut, frozen and tampered with. */
#define PIPES 16
static struct proxy {
    int listenfd, target_port, frozen;
    int fd[PIPES][2]; /* dialler's side, endpoint's side; -1 */
    int pipes;
    int corrupt_at; /* the byte with this number, from the dialler, is changed; -1 none */
    int seen;
} proxy = {.listenfd = -1};

RIG struct sockaddr_in loopback(int port)
{
    struct sockaddr_in s = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

    s.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return s;
}

RIG int listen_new(int *port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in s = loopback(0);
    socklen_t len = sizeof(s);

    ck_assert_int_eq(bind(fd, (struct sockaddr *)&s, len), 0);
    ck_assert_int_eq(listen(fd, 16), 0);
    getsockname(fd, (struct sockaddr *)&s, &len);
    *port = ntohs(s.sin_port);
    return fd;
}

RIG int connect_to(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in s = loopback(port);

    ck_assert_int_eq(connect(fd, (struct sockaddr *)&s, sizeof(s)), 0);
    /* small writes must not wait for the acknowledgement of the one before: settle() would give up
     * first */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

/* Name of @e as seen through the proxy. */
RIG struct r2_oob_name proxied(struct ep *e)
{
    struct r2_oob_name n = e->name;
    int port;

    proxy.listenfd = listen_new(&port);
    proxy.target_port = e->name.port;
    proxy.corrupt_at = -1;
    n.port = (uint16_t)port;
    return n;
}

RIG void pipe_cut(int i, int side)
{
    if (proxy.fd[i][side] >= 0) {
        close(proxy.fd[i][side]);
    }
    proxy.fd[i][side] = -1;
}

RIG void proxy_cut(void)
{
    for (int i = 0; i < proxy.pipes; i++) {
        pipe_cut(i, 0);
        pipe_cut(i, 1);
    }
}

RIG void write_all(int fd, const uint8_t *b, ssize_t n)
{
    while (n > 0) {
        ssize_t w = send(fd, b, (size_t)n, MSG_NOSIGNAL);
        if (w < 0) {
            return;
        }
        b += w;
        n -= w;
    }
}

RIG int pipe_move(int i, int side)
{
    uint8_t b[16384];
    int from = proxy.fd[i][side], to = proxy.fd[i][!side];
    ssize_t n = from < 0 ? -1 : recv(from, b, sizeof(b), MSG_DONTWAIT);

    if (n == 0) {
        pipe_cut(i, 0);
        pipe_cut(i, 1);
        return 1;
    }
    if (n < 0) {
        return 0;
    }
    if (side == 0 && proxy.corrupt_at >= proxy.seen && proxy.corrupt_at < proxy.seen + n) {
        b[proxy.corrupt_at - proxy.seen] ^= 1;
    }
    proxy.seen += side == 0 ? (int)n : 0;
    if (to >= 0) {
        write_all(to, b, n);
    }
    return 1;
}

RIG int proxy_step(void)
{
    int moved = 0, one = 1, fd;

    if (proxy.listenfd < 0 || proxy.frozen) {
        return 0;
    }
    while (proxy.pipes < PIPES && (fd = accept(proxy.listenfd, NULL, NULL)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        proxy.fd[proxy.pipes][0] = fd;
        proxy.fd[proxy.pipes++][1] = connect_to(proxy.target_port);
        moved = 1;
    }
    for (int i = 0; i < proxy.pipes; i++) {
        moved += pipe_move(i, 0) + pipe_move(i, 1);
    }
    return moved;
}

RIG int poll_all(int timeout_ms)
{
    struct pollfd p[EPS_MAX + 1 + 2 * PIPES];
    int n = 0;

    for (int i = 0; i < ep_count; i++) {
        if (eps[i].oob != NULL) {
            p[n++] = (struct pollfd){.fd = eps[i].oob->ops->fd(eps[i].oob), .events = POLLIN};
        }
    }
    if (proxy.listenfd >= 0 && !proxy.frozen) {
        p[n++] = (struct pollfd){.fd = proxy.listenfd, .events = POLLIN};
        for (int i = 0; i < 2 * proxy.pipes; i++) {
            p[n++] = (struct pollfd){.fd = proxy.fd[i / 2][i % 2], .events = POLLIN};
        }
    }
    return poll(p, (nfds_t)n, timeout_ms);
}

/* One turn of everybody; the next deadline. */
RIG uint64_t turn(void)
{
    uint64_t next = UINT64_MAX, t;

    for (int i = 0; i < ep_count; i++) {
        if (eps[i].oob == NULL) {
            continue;
        }
        t = eps[i].oob->ops->progress(eps[i].oob, clock_ns);
        if (t < next) {
            next = t;
        }
    }
    proxy_step();
    r2_log_flush();
    return next;
}

/* Turns until *what >= want; fails after @limit of the virtual clock. */
RIG int run_until(const int *what, int want, uint64_t limit)
{
    uint64_t end = clock_ns + limit;

    for (;;) {
        uint64_t next = turn();
        if (*what >= want) {
            return 1;
        }
        if (next <= clock_ns || poll_all(20) > 0) {
            continue;
        }
        if (next > end) {
            clock_ns = end;
            return 0;
        }
        clock_ns = next;
    }
}

static const int never; /* a thing that does not happen */

RIG void run_for(uint64_t time)
{
    (void)run_until(&never, 1, time);
}

/* Until nothing moves; the clock stands still. */
RIG void settle(void)
{
    do {
        turn();
    } while (poll_all(20) > 0);
}

#define UNTIL(what, want)                                                                          \
    ck_assert_msg(run_until(&(what), want, 30 * SEC), #what " is %d, not " #want, (what))

RIG void fresh(void)
{
    struct r2_env env;

    r2_env_default(&env);
    clock_ns = env.now_ns(env.arg);
    r2_log_sink_set(sink);
}

RIG void end_all(void)
{
    for (int i = 0; i < ep_count; i++) {
        if (eps[i].oob != NULL) {
            eps[i].oob->ops->destroy(eps[i].oob);
        }
        free(eps[i].keep);
    }
    proxy_cut();
    if (proxy.listenfd >= 0) {
        close(proxy.listenfd);
    }
    memset(eps, 0, sizeof(eps));
    memset(&proxy, 0, sizeof(proxy));
    proxy.listenfd = -1;
    ep_count = 0;
    warns[0] = infos[0] = 0;
}

RIG void ep_kill(struct ep *e)
{
    e->oob->ops->destroy(e->oob);
    e->oob = NULL;
}

RIG int live_channels(struct ep *e)
{
    int n = 0;

    for (struct tcp_chan *c = inside(e)->chans; c != NULL; c = c->next) {
        n += c->state != CHAN_DEAD;
    }
    return n;
}

/* A process whose hello and frames are made by hand. */
struct hand {
    int fd;
    struct oob_keys keys;
    uint64_t seq;
    uint64_t number; /* of its uuid; 0: 7 */
    struct oob_hello hello, answer;
};

RIG void read_exactly(int fd, uint8_t *b, size_t n)
{
    size_t got = 0;

    for (int i = 0; i < 200 && got < n; i++) {
        ssize_t r = recv(fd, b + got, n - got, MSG_DONTWAIT);
        if (r > 0) {
            got += (size_t)r;
        } else {
            settle();
        }
    }
    ck_assert_uint_eq(got, n);
}

/* Up to the challenge's answer; AUTH is the caller's. */
RIG void hand_dial(struct hand *h, struct ep *to, uint16_t version)
{
    uint8_t dial_bytes[OOB_HELLO_SIZE], answer[OOB_HELLO_SIZE];

    h->hello = (struct oob_hello){
        .version = version, .kind = OOB_HELLO_DIAL, .from = {7, 7}, .nonce = {9}};
    h->hello.from[0] = h->number ? h->number : 7;
    h->seq = 0;
    memcpy(h->hello.to, to->name.uuid, 16);
    oob_hello_pack(&h->hello, dial_bytes);
    h->fd = connect_to(to->name.port);
    write_all(h->fd, dial_bytes, sizeof(dial_bytes));
    read_exactly(h->fd, answer, sizeof(answer));
    ck_assert_int_ne(oob_hello_parse(answer, sizeof(answer), &h->answer), OOB_PARSE_BAD);
    oob_keys_derive(to->name.secret, dial_bytes, answer, &h->keys);
}

RIG size_t hand_frame(struct hand *h, uint8_t *b, uint8_t type, const char *text)
{
    return oob_frame_pack(b, type, text, strlen(text), h->seq++, h->keys.dialler);
}

/* Runs @cases, and the loops of @loops, as one suite; exit status. */
struct rig_loop {
    const TTest **test;
    int times;
};

RIG int rig_main(const char *name, const TTest **const *cases, int case_count,
                 const struct rig_loop *loops, int loop_count)
{
    Suite *s = suite_create(name);
    TCase *t = tcase_create(name);
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, fresh, end_all);
    for (int i = 0; i < case_count; i++) {
        tcase_add_test(t, *cases[i]);
    }
    for (int i = 0; i < loop_count; i++) {
        tcase_add_loop_test(t, *loops[i].test, 0, loops[i].times);
    }
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

#endif
