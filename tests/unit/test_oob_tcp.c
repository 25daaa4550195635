/*
 * The TCP channel between endpoints of one process. Sockets are real, time is not: when nothing moves any more, the
 * clock jumps to the next deadline, so that minutes of silence take milliseconds.
 */
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

#include "oob_tcp.h"
#include "r2_log.h"

#define MS  1000000ull
#define SEC 1000000000ull

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
static char warns[4096];

static void sink(enum r2_log_level level, const char *file, int line, const char *msg)
{
    size_t used = strlen(warns);

    if (level == R2_LOG_WARN)
        snprintf(warns + used, sizeof(warns) - used, "%s\n", msg);
}

static void told_message(void *arg, struct r2_oob_peer *p, const void *msg, size_t len)
{
    struct ep *e = arg;

    e->got++;
    e->peer = p;
    if (e->kept + len <= KEEP_MAX) {
        if (e->keep == NULL)
            e->keep = malloc(KEEP_MAX);
        memcpy(e->keep + e->kept, msg, len);
        e->kept += len;
    }
    if (e->on_message)
        e->on_message(e, p, msg, len);
}

static void told_up(void *arg, struct r2_oob_peer *p)
{
    struct ep *e = arg;

    e->up++;
    e->peer = p;
    ck_assert_int_eq(e->oob->ops->peer_is_up(p), 1);
    if (e->on_up)
        e->on_up(e, p);
}

static void told_down(void *arg, struct r2_oob_peer *p, int refused)
{
    struct ep *e = arg;

    e->down++;
    e->refused += refused != 0;
    ck_assert_int_eq(e->oob->ops->peer_is_up(p), 0);
}

static struct ep *ep_new(void)
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

static struct tcp_oob *inside(struct ep *e)
{
    return (struct tcp_oob *)e->oob;
}

static struct r2_oob_counters counters(struct ep *e)
{
    struct r2_oob_counters c;

    e->oob->ops->counters(e->oob, &c);
    return c;
}

/* Two endpoints, the first with the smaller uuid (or the larger). */
static void ep_pair(struct ep **a, struct ep **b, int smaller_first)
{
    struct ep *x = ep_new(), *y = ep_new();
    int x_first = (oob_uuid_compare(x->name.uuid, y->name.uuid) < 0) == smaller_first;

    *a = x_first ? x : y;
    *b = x_first ? y : x;
}

static struct r2_oob_peer *dial(struct ep *from, const struct r2_oob_name *to)
{
    struct r2_oob_peer *p = from->oob->ops->peer_get(from->oob, to);

    ck_assert_ptr_nonnull(p);
    return p;
}

static int say(struct ep *e, struct r2_oob_peer *p, const char *text)
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

static struct sockaddr_in loopback(int port)
{
    struct sockaddr_in s = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

    s.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return s;
}

static int listen_new(int *port)
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

static int connect_to(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in s = loopback(port);

    ck_assert_int_eq(connect(fd, (struct sockaddr *)&s, sizeof(s)), 0);
    /* small writes must not wait for the acknowledgement of the one before: settle() would give up first */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

/* Name of @e as seen through the proxy. */
static struct r2_oob_name proxied(struct ep *e)
{
    struct r2_oob_name n = e->name;
    int port;

    proxy.listenfd = listen_new(&port);
    proxy.target_port = e->name.port;
    proxy.corrupt_at = -1;
    n.port = (uint16_t)port;
    return n;
}

static void pipe_cut(int i, int side)
{
    if (proxy.fd[i][side] >= 0)
        close(proxy.fd[i][side]);
    proxy.fd[i][side] = -1;
}

static void proxy_cut(void)
{
    for (int i = 0; i < proxy.pipes; i++) {
        pipe_cut(i, 0);
        pipe_cut(i, 1);
    }
}

static void write_all(int fd, const uint8_t *b, ssize_t n)
{
    while (n > 0) {
        ssize_t w = send(fd, b, (size_t)n, MSG_NOSIGNAL);
        if (w < 0)
            return;
        b += w;
        n -= w;
    }
}

static int pipe_move(int i, int side)
{
    uint8_t b[16384];
    int from = proxy.fd[i][side], to = proxy.fd[i][!side];
    ssize_t n = from < 0 ? -1 : recv(from, b, sizeof(b), MSG_DONTWAIT);

    if (n == 0) {
        pipe_cut(i, 0);
        pipe_cut(i, 1);
        return 1;
    }
    if (n < 0)
        return 0;
    if (side == 0 && proxy.corrupt_at >= proxy.seen && proxy.corrupt_at < proxy.seen + n)
        b[proxy.corrupt_at - proxy.seen] ^= 1;
    proxy.seen += side == 0 ? (int)n : 0;
    if (to >= 0)
        write_all(to, b, n);
    return 1;
}

static int proxy_step(void)
{
    int moved = 0, one = 1, fd;

    if (proxy.listenfd < 0 || proxy.frozen)
        return 0;
    while (proxy.pipes < PIPES && (fd = accept(proxy.listenfd, NULL, NULL)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        proxy.fd[proxy.pipes][0] = fd;
        proxy.fd[proxy.pipes++][1] = connect_to(proxy.target_port);
        moved = 1;
    }
    for (int i = 0; i < proxy.pipes; i++)
        moved += pipe_move(i, 0) + pipe_move(i, 1);
    return moved;
}

static int poll_all(int timeout_ms)
{
    struct pollfd p[EPS_MAX + 1 + 2 * PIPES];
    int n = 0;

    for (int i = 0; i < ep_count; i++) {
        if (eps[i].oob != NULL)
            p[n++] = (struct pollfd){.fd = eps[i].oob->ops->fd(eps[i].oob), .events = POLLIN};
    }
    if (proxy.listenfd >= 0 && !proxy.frozen) {
        p[n++] = (struct pollfd){.fd = proxy.listenfd, .events = POLLIN};
        for (int i = 0; i < 2 * proxy.pipes; i++)
            p[n++] = (struct pollfd){.fd = proxy.fd[i / 2][i % 2], .events = POLLIN};
    }
    return poll(p, (nfds_t)n, timeout_ms);
}

/* One turn of everybody; the next deadline. */
static uint64_t turn(void)
{
    uint64_t next = UINT64_MAX, t;

    for (int i = 0; i < ep_count; i++) {
        if (eps[i].oob == NULL)
            continue;
        t = eps[i].oob->ops->progress(eps[i].oob, clock_ns);
        if (t < next)
            next = t;
    }
    proxy_step();
    r2_log_flush();
    return next;
}

/* Turns until *what >= want; fails after @limit of the virtual clock. */
static int run_until(const int *what, int want, uint64_t limit)
{
    uint64_t end = clock_ns + limit;

    for (;;) {
        uint64_t next = turn();
        if (*what >= want)
            return 1;
        if (next <= clock_ns || poll_all(20) > 0)
            continue;
        if (next > end) {
            clock_ns = end;
            return 0;
        }
        clock_ns = next;
    }
}

static const int never;

static void run_for(uint64_t time)
{
    (void)run_until(&never, 1, time);
}

/* Until nothing moves; the clock stands still. */
static void settle(void)
{
    do {
        turn();
    } while (poll_all(20) > 0);
}

#define UNTIL(what, want) ck_assert_msg(run_until(&(what), want, 30 * SEC), #what " is %d, not " #want, (what))

static void fresh(void)
{
    struct r2_env env;

    r2_env_default(&env);
    clock_ns = env.now_ns(env.arg);
    r2_log_sink_set(sink);
}

static void end_all(void)
{
    for (int i = 0; i < ep_count; i++) {
        if (eps[i].oob != NULL)
            eps[i].oob->ops->destroy(eps[i].oob);
        free(eps[i].keep);
    }
    proxy_cut();
    if (proxy.listenfd >= 0)
        close(proxy.listenfd);
    memset(eps, 0, sizeof(eps));
    memset(&proxy, 0, sizeof(proxy));
    proxy.listenfd = -1;
    ep_count = 0;
    warns[0] = 0;
}

static void ep_kill(struct ep *e)
{
    e->oob->ops->destroy(e->oob);
    e->oob = NULL;
}

static int live_channels(struct ep *e)
{
    int n = 0;

    for (struct tcp_chan *c = inside(e)->chans; c != NULL; c = c->next)
        n += c->state != CHAN_DEAD;
    return n;
}

START_TEST(names)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_name bad = b->name;

    ck_assert_uint_eq(sizeof(struct r2_oob_name), 56);
    ck_assert_mem_ne(a->name.uuid, b->name.uuid, 16);
    ck_assert_mem_ne(a->name.secret, b->name.secret, 16);
    ck_assert_int_eq(a->name.family, 4);
    ck_assert_uint_ne(a->name.port, 0);
    bad.port = 0;
    ck_assert_ptr_null(a->oob->ops->peer_get(a->oob, &bad));
    ck_assert_int_eq(errno, EINVAL);
    bad = b->name;
    bad.family = 0;
    ck_assert_ptr_null(a->oob->ops->peer_get(a->oob, &bad));
    bad = b->name;
    bad.uuid[0] = bad.uuid[1] = 0;
    ck_assert_ptr_null(a->oob->ops->peer_get(a->oob, &bad));
}
END_TEST

START_TEST(no_such_interface)
{
    struct r2_oob_tcp_config cfg = {.ifname = "=nothere0", .family = ""};
    struct r2_oob_events ev = {NULL, told_message, told_up, told_down};
    char why[256] = "";

    ck_assert_ptr_null(r2_oob_tcp_create(&cfg, &ev, why, sizeof(why)));
    ck_assert_ptr_nonnull(strstr(why, "'=nothere0'"));
}
END_TEST

START_TEST(both_ways)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_peer *p = dial(a, &b->name);

    ck_assert_int_eq(a->oob->ops->peer_is_up(p), 0);
    ck_assert_int_eq(say(a, p, "too early"), -1);
    UNTIL(b->up, 1);
    UNTIL(a->up, 1);
    ck_assert_ptr_eq(a->peer, p);
    ck_assert_mem_eq(a->oob->ops->peer_uuid(p), b->name.uuid, 16);
    ck_assert_mem_eq(b->oob->ops->peer_uuid(b->peer), a->name.uuid, 16);
    ck_assert_ptr_nonnull(strstr(a->oob->ops->peer_str(p), "127.0.0.1:"));
    ck_assert_int_eq(say(a, p, "hello"), 0);
    ck_assert_int_eq(say(b, b->peer, "and back"), 0);
    ck_assert_int_eq(say(b, b->peer, ""), 0);
    UNTIL(b->got, 1);
    UNTIL(a->got, 2);
    ck_assert_uint_eq(b->kept, 5);
    ck_assert_mem_eq(b->keep, "hello", 5);
    ck_assert_mem_eq(a->keep, "and back", 8);
    ck_assert_uint_eq(counters(a).sent, 1);
    ck_assert_uint_eq(counters(a).bytes_sent, 5);
    ck_assert_uint_eq(counters(a).received, 2);
    ck_assert_uint_eq(counters(a).bytes_received, 8);
    ck_assert_uint_eq(counters(b).sent, 2);
    ck_assert_uint_eq(counters(b).received, 1);
    ck_assert_uint_eq(counters(b).strangers + counters(b).bad_frames + counters(b).reconnects, 0);
    ck_assert_int_eq(a->down + b->down, 0);
    /* the same process by its name: the same peer */
    ck_assert_ptr_eq(dial(b, &a->name), b->peer);
    settle();
    ck_assert_int_eq(live_channels(b), 1);
}
END_TEST

/* The descriptor says when progress() is needed, also after calls outside of it. */
START_TEST(descriptor_is_readable)
{
    struct ep *a = ep_new();
    struct pollfd p = {.fd = a->oob->ops->fd(a->oob), .events = POLLIN};

    settle();
    ck_assert_int_eq(poll(&p, 1, 0), 0);
    dial(a, &a->name);
    ck_assert_int_eq(poll(&p, 1, 0), 1);
    settle();
    ck_assert_int_eq(poll(&p, 1, 0), 0);
    ck_assert_int_eq(say(a, a->peer, "x"), 0);
    ck_assert_int_eq(poll(&p, 1, 0), 1);
}
END_TEST

static void pattern(uint8_t *b, size_t len, int n)
{
    for (size_t i = 0; i < len; i++)
        b[i] = (uint8_t)(n * 31 + (int)i);
}

static void expect_next(struct ep *e, struct r2_oob_peer *p, const void *msg, size_t len)
{
    int n = e->got - 1;
    uint8_t want[R2_OOB_MAX_MESSAGE];

    ck_assert_uint_eq(len, (size_t)(n * 37) % 3000);
    pattern(want, len, n);
    ck_assert_mem_eq(msg, want, len);
}

START_TEST(order)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_peer *p = dial(a, &b->name);
    uint8_t msg[3000];

    a->on_message = b->on_message = expect_next;
    UNTIL(a->up, 1);
    UNTIL(b->up, 1);
    for (int i = 0; i < 2000; i++) {
        size_t len = (size_t)(i * 37) % 3000;
        pattern(msg, len, i);
        ck_assert_int_eq(a->oob->ops->send(p, msg, len), 0);
        ck_assert_int_eq(b->oob->ops->send(b->peer, msg, len), 0);
        if (i % 50 == 0)
            turn();
    }
    UNTIL(b->got, 2000);
    UNTIL(a->got, 2000);
    settle();
    ck_assert_int_eq(a->got + b->got, 4000);
}
END_TEST

START_TEST(largest_message)
{
    static uint8_t msg[R2_OOB_MAX_MESSAGE + 1];
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_peer *p = dial(a, &b->name);

    UNTIL(a->up, 1);
    pattern(msg, sizeof(msg), 3);
    ck_assert_int_eq(a->oob->ops->send(p, msg, sizeof(msg)), -1);
    ck_assert_int_eq(errno, EMSGSIZE);
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(a->oob->ops->send(p, msg, R2_OOB_MAX_MESSAGE), 0);
    UNTIL(b->got, 10);
    ck_assert_mem_eq(b->keep + 9 * R2_OOB_MAX_MESSAGE, msg, R2_OOB_MAX_MESSAGE);
}
END_TEST

/* ---- strangers ---- */

START_TEST(garbage_is_dropped_and_counted)
{
    struct ep *b = ep_new();
    int fd = connect_to(b->name.port);
    char byte;

    write_all(fd, (const uint8_t *)"GET / HTTP/1.0\r\n\r\n", 18);
    settle();
    ck_assert_uint_eq(counters(b).strangers, 1);
    ck_assert_int_eq(live_channels(b), 0);
    errno = 0;
    ck_assert_int_le((int)recv(fd, &byte, 1, MSG_DONTWAIT), 0);
    ck_assert_int_ne(errno, EAGAIN); /* closed, not waiting */
    ck_assert_int_eq(b->up + b->down + b->got, 0);
    close(fd);
}
END_TEST

START_TEST(silence_is_timed_out)
{
    struct ep *b = ep_new();
    int fd = connect_to(b->name.port);

    settle();
    ck_assert_int_eq(live_channels(b), 1);
    run_for(1900 * MS);
    ck_assert_int_eq(live_channels(b), 1);
    run_for(200 * MS);
    ck_assert_int_eq(live_channels(b), 0);
    ck_assert_uint_eq(counters(b).strangers, 1);
    close(fd);
}
END_TEST

/* A port scanner that says nothing and goes is no stranger worth a count; half a hello is. */
START_TEST(half_a_hello)
{
    struct ep *b = ep_new();
    struct oob_hello h = {.version = OOB_VERSION, .kind = OOB_HELLO_DIAL, .from = {1, 1}};
    uint8_t bytes[OOB_HELLO_SIZE];
    int fd = connect_to(b->name.port);

    settle();
    close(fd);
    settle();
    ck_assert_uint_eq(counters(b).strangers, 0);
    oob_hello_pack(&h, bytes);
    fd = connect_to(b->name.port);
    write_all(fd, bytes, 60);
    settle();
    close(fd);
    settle();
    ck_assert_uint_eq(counters(b).strangers, 1);
    ck_assert_int_eq(live_channels(b), 0);
}
END_TEST

START_TEST(crowd_of_strangers_keeps_nobody_out)
{
    struct ep *a = ep_new(), *b = ep_new();
    int fd[150];

    for (int i = 0; i < 150; i++)
        fd[i] = connect_to(b->name.port);
    settle();
    ck_assert_int_eq(live_channels(b), OOB_PENDING_MAX);
    dial(a, &b->name);
    ck_assert(run_until(&a->up, 1, 1900 * MS));
    ck_assert_uint_ge(counters(b).strangers, 150 - OOB_PENDING_MAX);
    for (int i = 0; i < 150; i++)
        close(fd[i]);
}
END_TEST

START_TEST(wrong_secret)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_name n = b->name;

    n.secret[7] ^= 4;
    dial(a, &n);
    UNTIL(a->down, 3);
    ck_assert_int_eq(a->up + b->up + b->down, 0);
    ck_assert_int_eq(a->refused, 0);
    ck_assert_uint_ge(counters(b).strangers, 3);
    ck_assert_int_eq(live_channels(b), 0);
}
END_TEST

/* Somebody else has the port of a process that is gone. */
START_TEST(wrong_process)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_name n = b->name;

    n.uuid[1] ^= 1;
    dial(a, &n);
    UNTIL(a->down, 1);
    ck_assert_int_eq(a->refused, 1);
    ck_assert_int_eq(a->up + b->up, 0);
    ck_assert_uint_eq(counters(b).strangers, 1);
}
END_TEST

START_TEST(nobody_listens)
{
    struct ep *a = ep_new(), *b = ep_new();
    uint64_t start = clock_ns;

    dial(a, &b->name);
    UNTIL(a->up, 1);
    ep_kill(b);
    UNTIL(a->refused, 12);
    /* 10, 20, .. 640 ms, then 1 s each, at least half of it */
    ck_assert_uint_ge(clock_ns - start, 2500 * MS);
    ck_assert_uint_le(clock_ns - start, 10 * SEC);
    ck_assert_int_eq(a->down, 13);
}
END_TEST

/* ---- an attacker who has the secret (or a peer gone mad): frames made by hand ---- */

struct hand {
    int fd;
    struct oob_keys keys;
    uint64_t seq;
    struct oob_hello hello, answer;
};

static void read_exactly(int fd, uint8_t *b, size_t n)
{
    size_t got = 0;

    for (int i = 0; i < 200 && got < n; i++) {
        ssize_t r = recv(fd, b + got, n - got, MSG_DONTWAIT);
        if (r > 0)
            got += (size_t)r;
        else
            settle();
    }
    ck_assert_uint_eq(got, n);
}

/* Up to the challenge's answer; AUTH is the caller's. */
static void hand_dial(struct hand *h, struct ep *to, uint16_t version)
{
    uint8_t dial_bytes[OOB_HELLO_SIZE], answer[OOB_HELLO_SIZE];

    h->hello = (struct oob_hello){.version = version, .kind = OOB_HELLO_DIAL, .from = {7, 7}, .nonce = {9}};
    h->seq = 0;
    memcpy(h->hello.to, to->name.uuid, 16);
    oob_hello_pack(&h->hello, dial_bytes);
    h->fd = connect_to(to->name.port);
    write_all(h->fd, dial_bytes, sizeof(dial_bytes));
    read_exactly(h->fd, answer, sizeof(answer));
    ck_assert_int_ne(oob_hello_parse(answer, sizeof(answer), &h->answer), OOB_PARSE_BAD);
    oob_keys_derive(to->name.secret, dial_bytes, answer, &h->keys);
}

static size_t hand_frame(struct hand *h, uint8_t *b, uint8_t type, const char *text)
{
    return oob_frame_pack(b, type, text, strlen(text), h->seq++, h->keys.dialler);
}

static void hand_up(struct hand *h, struct ep *to)
{
    uint8_t b[64];

    hand_dial(h, to, OOB_VERSION);
    write_all(h->fd, b, (ssize_t)hand_frame(h, b, OOB_AUTH, ""));
    UNTIL(to->up, 1);
    write_all(h->fd, b, (ssize_t)hand_frame(h, b, OOB_DATA, "good"));
    UNTIL(to->got, 1);
}

static void expect_bad(struct ep *b, struct hand *h)
{
    settle();
    ck_assert_uint_eq(counters(b).bad_frames, 1);
    ck_assert_int_eq(live_channels(b), 0);
    ck_assert_int_eq(b->got, 1);
    ck_assert_int_eq(b->down, 1);
    close(h->fd);
}

START_TEST(replayed_frame)
{
    struct ep *b = ep_new();
    struct hand h;
    uint8_t f[64];
    size_t n;

    hand_up(&h, b);
    h.seq--; /* the frame that was just taken, bit for bit */
    n = hand_frame(&h, f, OOB_DATA, "good");
    write_all(h.fd, f, (ssize_t)n);
    expect_bad(b, &h);
}
END_TEST

/* A whole channel recorded and played again: the nonce of the listener is another. */
START_TEST(replayed_channel)
{
    struct ep *b = ep_new();
    struct hand h, again;
    uint8_t f[64];

    hand_up(&h, b);
    hand_dial(&again, b, OOB_VERSION);
    again.keys = h.keys;
    write_all(again.fd, f, (ssize_t)hand_frame(&again, f, OOB_AUTH, ""));
    settle();
    ck_assert_uint_eq(counters(b).strangers, 1);
    ck_assert_int_eq(b->up, 1);
    ck_assert_int_eq(b->down, 0);
    ck_assert_int_eq(live_channels(b), 1);
    close(h.fd);
    close(again.fd);
}
END_TEST

START_TEST(truncated_frame)
{
    struct ep *b = ep_new();
    struct hand h;
    uint8_t f[64];
    size_t n;

    hand_up(&h, b);
    n = hand_frame(&h, f, OOB_DATA, "cut short");
    write_all(h.fd, f, (ssize_t)n - 1);
    settle();
    ck_assert_int_eq(b->got, 1); /* whole or not at all */
    shutdown(h.fd, SHUT_WR);
    expect_bad(b, &h);
}
END_TEST

START_TEST(oversized_frame)
{
    struct ep *b = ep_new();
    struct hand h;
    uint8_t f[64];

    hand_up(&h, b);
    hand_frame(&h, f, OOB_DATA, "");
    f[0] = 1; /* 65537 */
    f[2] = 1;
    write_all(h.fd, f, OOB_FRAME_HEAD); /* found by the head alone: no room is made for it */
    expect_bad(b, &h);
}
END_TEST

START_TEST(oversized_before_the_secret)
{
    struct ep *b = ep_new();
    struct hand h;
    uint8_t f[256];
    char big[OOB_AUTH_MAX + 2];

    memset(big, 'x', sizeof(big));
    big[OOB_AUTH_MAX + 1] = '\0';
    hand_dial(&h, b, OOB_VERSION);
    write_all(h.fd, f, (ssize_t)hand_frame(&h, f, OOB_AUTH, big));
    settle();
    ck_assert_uint_eq(counters(b).strangers, 1);
    ck_assert_int_eq(b->up, 0);
    ck_assert_int_eq(live_channels(b), 0);
    close(h.fd);
}
END_TEST

START_TEST(frame_of_no_known_type)
{
    struct ep *b = ep_new();
    struct hand h;
    uint8_t f[64];

    hand_up(&h, b);
    write_all(h.fd, f, (ssize_t)hand_frame(&h, f, 99, "what"));
    expect_bad(b, &h);
}
END_TEST

START_TEST(second_auth)
{
    struct ep *b = ep_new();
    struct hand h;
    uint8_t f[64];

    hand_up(&h, b);
    write_all(h.fd, f, (ssize_t)hand_frame(&h, f, OOB_AUTH, ""));
    expect_bad(b, &h);
}
END_TEST

/* Data before AUTH, even with the right key, is not data. */
START_TEST(data_first)
{
    struct ep *b = ep_new();
    struct hand h;
    uint8_t f[64];

    hand_dial(&h, b, OOB_VERSION);
    write_all(h.fd, f, (ssize_t)hand_frame(&h, f, OOB_DATA, "early"));
    settle();
    ck_assert_int_eq(b->got + b->up, 0);
    ck_assert_uint_eq(counters(b).bad_frames, 1);
    ck_assert_int_eq(live_channels(b), 0);
    close(h.fd);
}
END_TEST

START_TEST(changed_on_the_way)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_name n = proxied(b);
    struct r2_oob_peer *p = dial(a, &n);

    UNTIL(a->up, 1);
    settle();
    ck_assert_int_eq(say(a, p, "one"), 0);
    UNTIL(b->got, 1);
    proxy.corrupt_at = proxy.seen + OOB_FRAME_HEAD + 1;
    ck_assert_int_eq(say(a, p, "two"), 0);
    UNTIL(b->down, 1);
    ck_assert_int_eq(b->got, 1);
    ck_assert_uint_eq(counters(b).bad_frames, 1);
    UNTIL(a->up, 2); /* and it comes back */
    ck_assert_int_eq(say(a, p, "three"), 0);
    UNTIL(b->got, 2);
    ck_assert_mem_eq(b->keep, "onethree", 8);
}
END_TEST

/* ---- versions ---- */

START_TEST(dialler_of_another_version)
{
    struct ep *b = ep_new();
    struct hand h;

    for (int i = 0; i < 3; i++) {
        hand_dial(&h, b, 7);
        ck_assert_uint_eq(h.answer.version, OOB_VERSION);
        ck_assert_uint_eq(h.answer.code, OOB_HELLO_VERSION);
        close(h.fd);
        settle();
    }
    r2_log_flush();
    ck_assert_ptr_nonnull(strstr(warns, "version 7"));
    ck_assert_ptr_nonnull(strstr(warns, "version 1"));
    ck_assert_ptr_eq(strchr(warns, '\n'), warns + strlen(warns) - 1); /* once */
    ck_assert_int_eq(live_channels(b), 0);
    ck_assert_int_eq(b->up, 0);
}
END_TEST

START_TEST(listener_of_another_version)
{
    struct ep *a = ep_new();
    struct r2_oob_name n = a->name;
    struct oob_hello h = {.version = 9, .kind = OOB_HELLO_ANSWER, .code = OOB_HELLO_VERSION, .from = {5, 5}};
    uint8_t bytes[OOB_HELLO_SIZE];
    int port, lfd = listen_new(&port), fd;

    n.uuid[0] = n.uuid[1] = 5;
    n.port = (uint16_t)port;
    dial(a, &n);
    for (int i = 0; i < 3; i++) {
        do {
            (void)run_until(&never, 1, 10 * MS);
            fd = accept(lfd, NULL, NULL);
        } while (fd < 0);
        read_exactly(fd, bytes, sizeof(bytes));
        memcpy(h.to, a->name.uuid, 16);
        oob_hello_pack(&h, bytes);
        write_all(fd, bytes, sizeof(bytes));
        UNTIL(a->down, i + 1);
        close(fd);
    }
    r2_log_flush();
    ck_assert_ptr_nonnull(strstr(warns, "speaks version 9, this process version 1"));
    ck_assert_ptr_eq(strchr(warns, '\n'), warns + strlen(warns) - 1);
    ck_assert_int_eq(a->up, 0);
    close(lfd);
}
END_TEST

/* ---- both dial ---- */

#define BURST 150
static size_t burst_len; /* 60000: more than the sockets take, so that a channel given up still has a queue */

static void send_burst(struct ep *e, struct r2_oob_peer *p)
{
    static const uint8_t msg[60000];

    for (int i = 0; i < BURST && e->oob->ops->send(p, msg, burst_len) == 0; i++)
        e->said++;
    ck_assert_int_ge(e->said, 20);
}

/* Whatever the order of the turns: one channel stays, it is the smaller one's, and nothing of what was sent is lost. */
START_TEST(simultaneous_dial)
{
    unsigned seed = (unsigned)_i * 7919u + 1;
    struct ep *a, *b;
    struct r2_oob_peer *pa, *pb;

    ep_pair(&a, &b, 1);
    burst_len = _i % 2 ? 60000 : 10;
    a->on_up = b->on_up = send_burst;
    pa = dial(a, &b->name);
    pb = dial(b, &a->name);
    for (int i = 0; i < 12; i++) {
        struct ep *e = rand_r(&seed) % 2 ? a : b;
        e->oob->ops->progress(e->oob, clock_ns);
    }
    UNTIL(a->up, 1);
    UNTIL(b->up, 1);
    UNTIL(a->got, b->said);
    UNTIL(b->got, a->said);
    send_burst(a, pa);
    send_burst(b, pb);
    UNTIL(a->got, b->said);
    UNTIL(b->got, a->said);
    settle();
    ck_assert_int_eq(a->up, 1);
    ck_assert_int_eq(b->up, 1);
    ck_assert_int_eq(a->down + b->down, 0);
    ck_assert_int_eq(a->got, b->said);
    ck_assert_int_eq(b->got, a->said);
    ck_assert_int_eq(live_channels(a), 1);
    ck_assert_int_eq(live_channels(b), 1);
    ck_assert_uint_eq(inside(a)->chans->id, inside(b)->chans->id);
    ck_assert_uint_eq(counters(a).strangers + counters(a).bad_frames + counters(a).reconnects, 0);
    ck_assert_uint_eq(counters(b).strangers + counters(b).bad_frames + counters(b).reconnects, 0);
    /* whenever both dials went all the way the smaller uuid's stayed; if one was given up, the other is in use on both
     * ends */
    ck_assert_int_ne(inside(a)->chans->by_us, inside(b)->chans->by_us);
}
END_TEST

/* Both dials are forced all the way before either end is told of the other's: then the rule decides, not the luck. */
START_TEST(simultaneous_dial_is_decided_by_uuid)
{
    struct ep *a, *b;

    ep_pair(&a, &b, 1);
    dial(a, &b->name);
    dial(b, &a->name);
    /* in step: connect and hello, answers, AUTH of both cross, and both accept */
    for (int i = 0; i < 20 && (a->up == 0 || b->up == 0); i++) {
        a->oob->ops->progress(a->oob, clock_ns);
        b->oob->ops->progress(b->oob, clock_ns);
        poll_all(20);
    }
    settle();
    ck_assert_int_eq(live_channels(a), 1);
    ck_assert_int_eq(live_channels(b), 1);
    ck_assert_int_eq(inside(a)->chans->by_us + inside(b)->chans->by_us, 1);
    ck_assert_uint_eq(inside(a)->chans->id, inside(b)->chans->id);
}
END_TEST

/* ---- loss and return ---- */

START_TEST(cut_and_redialled)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_name n = proxied(b);
    struct r2_oob_peer *p = dial(a, &n);

    for (int i = 1; i <= 5; i++) {
        UNTIL(a->up, i);
        UNTIL(b->up, i);
        ck_assert_int_eq(say(a, p, "x"), 0);
        UNTIL(b->got, i);
        proxy_cut();
        UNTIL(a->down, i);
        UNTIL(b->down, i);
        ck_assert_int_eq(say(a, p, "y"), -1);
    }
    UNTIL(a->up, 6);
    ck_assert_uint_eq(counters(a).reconnects, 5);
    ck_assert_uint_eq(counters(a).strangers + counters(a).bad_frames, 0);
}
END_TEST

/* Only the dialler's side breaks: the listener's channel looks healthy and must give way to the dialler's new one. */
START_TEST(dialler_lost_it_alone)
{
    struct ep *a, *b;
    struct r2_oob_name n;

    ep_pair(&a, &b, _i);
    n = proxied(b);
    dial(a, &n);
    UNTIL(a->up, 1);
    UNTIL(b->up, 1);
    pipe_cut(0, 0);
    UNTIL(a->up, 2);
    UNTIL(b->up, 2);
    ck_assert_int_eq(b->down, 1);
    settle();
    ck_assert_int_eq(live_channels(b), 1);
    ck_assert_int_eq(say(a, a->peer, "new"), 0);
    UNTIL(b->got, 1);
}
END_TEST

/* The listener's side alone breaks, and it dials back, with the secret it was dialled with. */
START_TEST(listener_lost_it_alone)
{
    struct ep *a, *b;
    struct r2_oob_name n;

    ep_pair(&a, &b, _i);
    n = proxied(b);
    dial(a, &n);
    UNTIL(a->up, 1);
    UNTIL(b->up, 1);
    b->oob->ops->peer_ref(b->peer);
    pipe_cut(0, 1);
    UNTIL(b->up, 2);
    UNTIL(a->up, 2);
    settle();
    ck_assert_int_eq(a->down, 1);
    ck_assert_int_eq(b->down, 1);
    ck_assert_int_eq(live_channels(a), 1);
    ck_assert_int_eq(live_channels(b), 1);
    ck_assert_int_eq(inside(b)->chans->by_us, 1);
    ck_assert_int_eq(say(b, b->peer, "back"), 0);
    UNTIL(a->got, 1);
    ck_assert_uint_eq(counters(a).strangers, 0);
}
END_TEST

/* Nothing arrives, nothing is refused: both ends notice, the dialler comes back when it can. */
START_TEST(half_open)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_name n = proxied(b);
    uint64_t start;

    dial(a, &n);
    UNTIL(a->up, 1);
    UNTIL(b->up, 1);
    settle();
    run_for(10 * SEC); /* silence alone is no reason: PING and PONG */
    ck_assert_int_eq(a->down + b->down, 0);
    proxy.frozen = 1;
    start = clock_ns;
    UNTIL(a->down, 1);
    UNTIL(b->down, 1);
    ck_assert_uint_ge(clock_ns - start, 2 * SEC);
    ck_assert_uint_le(clock_ns - start, 4 * SEC);
    proxy_cut();
    proxy.frozen = 0;
    UNTIL(a->up, 2);
    UNTIL(b->up, 2);
}
END_TEST

/* ---- queues, references, ends ---- */

START_TEST(queue_full)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_name n = proxied(b);
    struct r2_oob_peer *p = dial(a, &n);
    static uint8_t msg[4096];
    int sent = 0;

    UNTIL(a->up, 1);
    settle();
    proxy.frozen = 1;
    while (memcpy(msg, &sent, sizeof(sent)), a->oob->ops->send(p, msg, sizeof(msg)) == 0)
        sent++;
    ck_assert_int_eq(errno, EAGAIN);
    ck_assert_int_ge(sent, (int)(OOB_QUEUE_MAX / (sizeof(msg) + 64)));
    ck_assert_int_le(sent, 10000);
    ck_assert_uint_eq(counters(a).queue_full, 1);
    ck_assert_uint_eq(counters(a).sent, (uint64_t)sent);
    proxy.frozen = 0;
    UNTIL(b->got, sent);
    ck_assert_int_eq(a->down, 0);
    ck_assert_int_eq(a->oob->ops->send(p, msg, sizeof(msg)), 0);
    UNTIL(b->got, sent + 1);
    for (int i = 0; i < 100; i++)
        ck_assert_mem_eq(b->keep + (size_t)i * sizeof(msg), &i, sizeof(i));
}
END_TEST

START_TEST(last_reference_closes_in_order)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_peer *p = dial(a, &b->name);
    static uint8_t msg[60000];

    UNTIL(a->up, 1);
    UNTIL(b->up, 1);
    a->oob->ops->peer_ref(p);
    a->oob->ops->peer_put(p);
    settle();
    ck_assert_int_eq(live_channels(a), 1);
    for (int i = 0; i < 60; i++)
        ck_assert_int_eq(a->oob->ops->send(p, msg, sizeof(msg)), 0);
    /* unread bytes on our side must not turn the end into an RST that destroys what b has not read yet */
    ck_assert_int_eq(say(b, b->peer, "unread"), 0);
    a->oob->ops->peer_put(p);
    UNTIL(b->got, 60);
    UNTIL(b->down, 1);
    settle();
    ck_assert_int_eq(a->got + a->down, 0); /* nobody there to be told */
    ck_assert_int_eq(live_channels(a) + live_channels(b), 0);
    ck_assert_ptr_null(inside(a)->peers);
    ck_assert_ptr_null(inside(b)->peers);
    ck_assert_uint_eq(counters(b).bad_frames, 0);
    /* and it can be had again */
    dial(a, &b->name);
    UNTIL(a->up, 2);
}
END_TEST

static void put_it(struct ep *e, struct r2_oob_peer *p, const void *msg, size_t len)
{
    e->oob->ops->peer_put(p);
}

START_TEST(put_from_an_upcall)
{
    struct ep *a = ep_new(), *b = ep_new();

    dial(a, &b->name);
    UNTIL(b->up, 1);
    UNTIL(a->up, 1);
    a->on_message = put_it;
    ck_assert_int_eq(say(b, b->peer, "bye"), 0);
    ck_assert_int_eq(say(b, b->peer, "not heard"), 0);
    UNTIL(b->down, 1);
    ck_assert_int_eq(a->got, 1);
    settle();
    ck_assert_ptr_null(inside(a)->peers);
}
END_TEST

static void *drain_reader(void *arg)
{
    struct ep *b = arg;
    struct r2_env env;
    struct pollfd p = {.fd = b->oob->ops->fd(b->oob), .events = POLLIN};

    r2_env_default(&env);
    while (b->down == 0) {
        b->oob->ops->progress(b->oob, env.now_ns(env.arg));
        (void)poll(&p, 1, 100);
    }
    return NULL;
}

START_TEST(drain_brings_everything_out)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_peer *p = dial(a, &b->name);
    static uint8_t msg[60000];
    struct r2_env env;
    pthread_t t;
    uint64_t start;

    r2_env_default(&env);
    UNTIL(a->up, 1);
    UNTIL(b->up, 1);
    for (int i = 0; i < 60; i++)
        ck_assert_int_eq(a->oob->ops->send(p, msg, sizeof(msg)), 0);
    ck_assert_int_eq(pthread_create(&t, NULL, drain_reader, b), 0);
    start = env.now_ns(env.arg);
    a->oob->ops->drain(a->oob, 20 * SEC);
    ck_assert_uint_lt(env.now_ns(env.arg) - start, 15 * SEC);
    pthread_join(t, NULL);
    ck_assert_int_eq(b->got, 60);
    ck_assert_int_eq(live_channels(a), 0);
    ck_assert_uint_eq(counters(b).bad_frames, 0);
}
END_TEST

/* A peer that does not read cannot hold us. */
START_TEST(drain_has_a_limit)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_peer *p = dial(a, &b->name);
    static uint8_t msg[60000];
    struct r2_env env;
    uint64_t start;

    r2_env_default(&env);
    UNTIL(a->up, 1);
    while (a->oob->ops->send(p, msg, sizeof(msg)) == 0)
        ;
    start = env.now_ns(env.arg);
    a->oob->ops->drain(a->oob, 300 * MS);
    ck_assert_uint_ge(env.now_ns(env.arg) - start, 299 * MS);
    ck_assert_uint_lt(env.now_ns(env.arg) - start, 5 * SEC);
    ck_assert_int_eq(live_channels(a), 0);
}
END_TEST

/* ---- to ourselves, to many ---- */

static void answer_once(struct ep *e, struct r2_oob_peer *p, const void *msg, size_t len)
{
    if (e->got == 1) {
        ck_assert_int_eq(say(e, p, "answer"), 0);
        ck_assert_int_eq(e->got, 1); /* not inside of send */
    }
}

START_TEST(to_ourselves)
{
    struct ep *a = ep_new();
    struct r2_oob_peer *p = dial(a, &a->name);
    static uint8_t big[R2_OOB_MAX_MESSAGE];
    int sent = 0;

    ck_assert_int_eq(say(a, p, "early"), -1);
    UNTIL(a->up, 1);
    a->on_message = answer_once;
    ck_assert_int_eq(say(a, p, "1"), 0);
    ck_assert_int_eq(say(a, p, "2"), 0);
    ck_assert_int_eq(a->got, 0);
    a->oob->ops->progress(a->oob, clock_ns);
    ck_assert_int_eq(a->got, 2); /* the answer waits for the next turn */
    UNTIL(a->got, 3);
    ck_assert_mem_eq(a->keep, "12answer", 8);
    while (a->oob->ops->send(p, big, sizeof(big)) == 0)
        sent++;
    ck_assert_int_ge(sent, 60);
    ck_assert_int_le(sent, 64);
    ck_assert_uint_eq(counters(a).queue_full, 1);
    UNTIL(a->got, 3 + sent);
    ck_assert_int_eq(live_channels(a), 0);
    ck_assert_ptr_eq(dial(a, &a->name), p);
    a->oob->ops->peer_put(p);
    a->oob->ops->peer_put(p);
}
END_TEST

static void echo(struct ep *e, struct r2_oob_peer *p, const void *msg, size_t len)
{
    ck_assert_int_eq(e->oob->ops->send(p, msg, len), 0);
}

START_TEST(many_peers)
{
    struct ep *hub = ep_new(), *e[48];
    int n = (int)(sizeof(e) / sizeof(e[0]));

    hub->on_message = echo;
    for (int i = 0; i < n; i++) {
        e[i] = ep_new();
        dial(e[i], &hub->name);
        if (i % 3 == 0)
            dial(hub, &e[i]->name);
    }
    UNTIL(hub->up, n);
    for (int i = 0; i < n; i++)
        UNTIL(e[i]->up, 1);
    for (int i = 0; i < n; i++) {
        uint8_t c = (uint8_t)i;
        ck_assert_int_eq(e[i]->oob->ops->send(e[i]->peer, &c, 1), 0);
    }
    for (int i = 0; i < n; i++) {
        UNTIL(e[i]->got, 1);
        ck_assert_int_eq(e[i]->keep[0], i);
    }
    settle();
    ck_assert_int_eq(live_channels(hub), n);
    ck_assert_int_eq(hub->up, n);
    ck_assert_int_eq(hub->down, 0);
    for (int i = 0; i < n / 2; i++)
        ep_kill(e[i]);
    UNTIL(hub->down, n / 2);
    ck_assert_uint_eq(counters(hub).received, (uint64_t)n);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("oob_tcp");
    TCase *t = tcase_create("oob_tcp");
    static const TTest *const *const plain[] = {
        &names,
        &no_such_interface,
        &both_ways,
        &descriptor_is_readable,
        &order,
        &largest_message,
        &garbage_is_dropped_and_counted,
        &silence_is_timed_out,
        &half_a_hello,
        &crowd_of_strangers_keeps_nobody_out,
        &wrong_secret,
        &wrong_process,
        &nobody_listens,
        &replayed_frame,
        &replayed_channel,
        &truncated_frame,
        &oversized_frame,
        &oversized_before_the_secret,
        &frame_of_no_known_type,
        &second_auth,
        &data_first,
        &changed_on_the_way,
        &dialler_of_another_version,
        &listener_of_another_version,
        &simultaneous_dial_is_decided_by_uuid,
        &cut_and_redialled,
        &half_open,
        &queue_full,
        &last_reference_closes_in_order,
        &put_from_an_upcall,
        &drain_brings_everything_out,
        &drain_has_a_limit,
        &to_ourselves,
        &many_peers,
    };

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, fresh, end_all);
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        tcase_add_test(t, *plain[i]);
    tcase_add_loop_test(t, simultaneous_dial, 0, 40);
    tcase_add_loop_test(t, dialler_lost_it_alone, 0, 2);
    tcase_add_loop_test(t, listener_lost_it_alone, 0, 2);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    SRunner *r = srunner_create(suite());
    int failed;

    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
