/*
 * Many dial at once, beside strangers who keep places and say nothing. The listener alone is the
 * code's; who dials is made by hand, a socket each, so that thousands fit into one process. Time
 * is the rig's: it stands still while anything moves.
 */
#include "tests/unit/oob_rig.h"

#include <fcntl.h>
#include <sys/resource.h>

#define CALLERS 2000
#define SILENT  600

/* An honest dialler: hello as soon as it is connected, AUTH as soon as it is answered. */
struct caller {
    int fd,
        stage; /* 0: hello is to go out; 1: the answer is awaited; 2: AUTH is; 3: up; -1: lost */
    size_t have;
    uint8_t hello[OOB_HELLO_SIZE], in[OOB_HELLO_SIZE];
    struct oob_keys keys;
};

static struct caller callers[CALLERS];
static int caller_count, callers_up, callers_lost;
static int silent[SILENT + OOB_PLACES_MAX], silent_count, silent_closed;

/* A socket from 127.@a.@b.@c to @to, on its way. */
static int socket_from(struct ep *to, unsigned a, unsigned b, unsigned c)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    struct sockaddr_in from = loopback(0), s = loopback(to->name.port);

    ck_assert_int_ge(fd, 0);
    from.sin_addr.s_addr = htonl(127u << 24 | a << 16 | b << 8 | c);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(fd, (struct sockaddr *)&s, sizeof(s)) != 0) {
        ck_assert_int_eq(errno, EINPROGRESS);
    }
    return fd;
}

static void caller_hello(struct caller *c)
{
    if (send(c->fd, c->hello, sizeof(c->hello), MSG_NOSIGNAL) == (ssize_t)sizeof(c->hello)) {
        c->stage = 1;
    }
}

static struct caller *caller_new(struct ep *to, unsigned a, unsigned b, unsigned d)
{
    struct caller *c = &callers[caller_count];
    struct oob_hello h = {.version = OOB_VERSION,
                          .kind = OOB_HELLO_DIAL,
                          .family = 4,
                          .port = 9,
                          .addr = {127, 0, 0, 1}};

    *c = (struct caller){.fd = socket_from(to, a, b, d)};
    h.from[0] = h.from[1] = (uint64_t)++caller_count;
    memcpy(h.to, to->name.uuid, sizeof(h.to));
    oob_hello_pack(&h, c->hello);
    return c;
}

/* 1: something happened. */
static int caller_step(struct caller *c, struct ep *to)
{
    size_t want = c->stage == 1 ? OOB_HELLO_SIZE : OOB_FRAME_HEAD + 1 + OOB_FRAME_MAC;
    uint8_t frame[OOB_FRAME_HEAD + OOB_FRAME_MAC];
    struct oob_hello answer;
    ssize_t n;

    if (c->stage == 0) {
        caller_hello(c);
    }
    if (c->stage != 1 && c->stage != 2) {
        return 0;
    }
    n = recv(c->fd, c->in + c->have, want - c->have, MSG_DONTWAIT);
    if (n <= 0 && (n == 0 || errno != EAGAIN)) {
        c->stage = -1;
        callers_lost++;
        return 1;
    }
    if (n <= 0) {
        return 0;
    }
    c->have += (size_t)n;
    if (c->have < want) {
        return 1;
    }
    c->have = 0;
    if (c->stage++ == 2) {
        callers_up++;
        return 1;
    }
    ck_assert_int_eq(oob_hello_parse(c->in, sizeof(c->in), &answer), OOB_PARSE_OK);
    oob_keys_derive(to->name.secret, c->hello, c->in, &c->keys);
    write_all(c->fd, frame, (ssize_t)oob_frame_pack(frame, OOB_AUTH, "", 0, 0, c->keys.dialler));
    return 1;
}

/* A stranger who is thrown out comes again at once. */
static int silent_step(struct ep *to, int i)
{
    uint8_t byte;
    ssize_t n = recv(silent[i], &byte, 1, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == ENOTCONN)) {
        return 0;
    }
    close(silent[i]);
    silent[i] = socket_from(to, 0, 0, 9);
    silent_closed++;
    return 1;
}

static int all_step(struct ep *to, uint64_t *next)
{
    int moved = 0;

    *next = turn();
    for (int i = 0; i < caller_count; i++) {
        moved += caller_step(&callers[i], to);
    }
    for (int i = 0; i < silent_count; i++) {
        moved += silent_step(to, i);
    }
    return moved;
}

/* Until @want callers are up, or nothing moves that @limit of the clock would not move. */
static int callers_until(struct ep *to, int want, uint64_t limit)
{
    uint64_t end = clock_ns + limit, next;

    for (;;) {
        int moved = all_step(to, &next);
        if (callers_up >= want) {
            return 1;
        }
        if (moved || next <= clock_ns || poll_all(20) > 0) {
            continue;
        }
        if (next > end) {
            return 0;
        }
        clock_ns = next;
    }
}

static int somaxconn(void)
{
    char text[32] = "";
    int fd = open("/proc/sys/net/core/somaxconn", O_RDONLY);

    if (fd >= 0 && read(fd, text, sizeof(text) - 1) < 0) {
        text[0] = 0;
    }
    if (fd >= 0) {
        close(fd);
    }
    return atoi(text) > 0 ? atoi(text) : 128;
}

/* Enough to take all places more than once, where this host has the descriptors. */
static int strangers_that_fit(void)
{
    struct rlimit l;
    rlim_t n = SILENT;

    getrlimit(RLIMIT_NOFILE, &l);
    n = l.rlim_max / 4 < n ? l.rlim_max / 4 : n;
    return somaxconn() / 4 < (int)n ? somaxconn() / 4 : (int)n;
}

/* As many descriptors as @callers and @strangers take at both ends; fewer callers where this host
 * gives fewer. */
static int callers_that_fit(int want, int strangers)
{
    struct rlimit l;
    int room, queue = somaxconn() - strangers - 64;

    getrlimit(RLIMIT_NOFILE, &l);
    l.rlim_cur = l.rlim_max;
    setrlimit(RLIMIT_NOFILE, &l);
    room = l.rlim_max > 100000 ? want : ((int)l.rlim_max - 2 * strangers - 100) / 2;
    want = want < room ? want : room;
    return want < queue ? want : queue;
}

static void storm_end(void)
{
    for (int i = 0; i < caller_count; i++) {
        close(callers[i].fd);
    }
    for (int i = 0; i < silent_count; i++) {
        close(silent[i]);
    }
    caller_count = callers_up = callers_lost = silent_count = silent_closed = 0;
}

/* ---- places ---- */

/* More than there are places, all honest, all behind one address: nobody waits for time to pass.
 */
START_TEST(a_place_that_is_free_is_used_at_once)
{
    struct ep *b = ep_new();
    int n = callers_that_fit(CALLERS, 0);
    uint64_t begin = clock_ns;

    for (int i = 0; i < n; i++) {
        caller_hello(caller_new(b, 0, 0, 1));
    }
    settle();
    ck_assert_int_eq(inside(b)->door.paused, 1);
    ck_assert_msg(callers_until(b, n, 0), "%d of %d are up, %d lost", callers_up, n, callers_lost);
    ck_assert_uint_eq(clock_ns, begin);
    ck_assert_int_eq(callers_lost, 0);
    ck_assert_int_eq(b->up, n);
    ck_assert_uint_eq(counters(b).strangers, 0);
    storm_end();
}
END_TEST

/* The storm of a large job while somebody keeps 600 sockets open, and opens another for each that
 * is closed. */
START_TEST(start_storm_beside_a_stranger)
{
    struct ep *b = ep_new();
    int strangers = strangers_that_fit(), n = callers_that_fit(CALLERS, strangers);
    uint64_t begin = clock_ns;

    for (; silent_count < strangers; silent_count++) {
        silent[silent_count] = socket_from(b, 0, 0, 9);
    }
    (void)all_step(b, &begin);
    begin = clock_ns;
    for (int i = 0; i < n;
         i++) { /* eight processes to a host, every tenth behind the stranger's own address */
        caller_hello(i % 10 ? caller_new(b, 1, (unsigned)i / 8 / 250, (unsigned)i / 8 % 250 + 1)
                            : caller_new(b, 0, 0, 9));
    }
    ck_assert_msg(callers_until(b, n, SEC / 2), "%d of %d are up after %llu ms, %d lost",
                  callers_up, n, (unsigned long long)((clock_ns - begin) / MS), callers_lost);
    ck_assert_int_eq(callers_lost, 0);
    ck_assert_int_gt(silent_closed, 0);
    ck_assert_int_eq(b->up, n);
    storm_end();
}
END_TEST

/* All places but the guest's are a stranger's of one address, and more of that come: the guest,
 * who is slow and the oldest of them all, keeps its place. */
START_TEST(who_crowds_goes_first)
{
    struct ep *b = ep_new();
    struct caller *guest = caller_new(b, 0, 0, 2);
    uint64_t next;
    int places = inside(b)->door.places;

    guest->stage = 9; /* connected, and busy */
    settle();
    clock_ns += MS;
    ck_assert_int_ge(callers_that_fit(1, places), 1);
    for (; silent_count < places - 1; silent_count++) {
        silent[silent_count] = socket_from(b, 0, 0, 9);
    }
    while (all_step(b, &next) || poll_all(20) > 0)
        ;
    ck_assert_int_eq(live_channels(b), places);
    clock_ns += 60 * MS;
    for (int i = 0; i < 50; i++, silent_count++) {
        silent[silent_count] = socket_from(b, 0, 0, 9);
    }
    for (int i = 0; i < 3; i++, clock_ns += 60 * MS) {
        while (all_step(b, &next) || poll_all(20) > 0) /* who is thrown out comes again */
            ;
    }
    ck_assert_int_ge(silent_closed, places - 1);
    guest->stage = 0;
    ck_assert(callers_until(b, 1, 0));
    storm_end();
}
END_TEST

/* The listener's own thread was away: who has spoken meanwhile is not one of the silent. */
START_TEST(words_that_wait_count)
{
    struct ep *b = ep_new();
    int places = inside(b)->door.places, strangers = 50;
    uint64_t next;

    ck_assert_int_eq(callers_that_fit(places, strangers), places);
    for (int i = 0; i < places; i++) {
        caller_new(b, 0, 0, 2)->stage = 9;
    }
    while (all_step(b, &next) || poll_all(20) > 0)
        ;
    ck_assert_int_eq(live_channels(b), places);
    for (; silent_count < strangers; silent_count++) {
        silent[silent_count] = socket_from(b, 0, 0, 9);
    }
    for (int i = 0; i < places; i++) {
        caller_hello(&callers[i]);
    }
    clock_ns += 10 * OOB_WAIT_SILENT_NS;
    ck_assert_msg(callers_until(b, places, SEC), "%d of %d are up, %d lost", callers_up, places,
                  callers_lost);
    ck_assert_int_eq(callers_lost, 0);
    storm_end();
}
END_TEST

/* With no descriptor left, one that a silent stranger has had long enough is an honest dialler's.
 */
START_TEST(a_stranger_gives_up_its_descriptor)
{
    struct ep *b = ep_new();
    struct rlimit was, tight;
    uint64_t next;
    int top;

    for (; silent_count < 3; silent_count++) {
        silent[silent_count] = socket_from(b, 0, 0, 9);
    }
    while (all_step(b, &next) || poll_all(20) > 0)
        ;
    caller_hello(caller_new(b, 0, 0, 2));
    top = dup(0);
    getrlimit(RLIMIT_NOFILE, &was);
    tight = was;
    tight.rlim_cur = (rlim_t)(top + 1);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &tight), 0);
    (void)turn();
    ck_assert_int_eq(inside(b)->door.starved, 1);
    clock_ns += OOB_WAIT_SILENT_NS;
    for (int i = 0; i < 10 && callers_up == 0; i++) {
        (void)turn();
        (void)caller_step(&callers[0], b);
    }
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &was), 0);
    ck_assert_int_eq(callers_up, 1);
    ck_assert_uint_eq(counters(b).strangers, 1);
    close(top);
    storm_end();
}
END_TEST

/* Nobody goes before his time; the order is said in oob_wire.h. */
START_TEST(order_of_going)
{
    struct oob_waiter silent_old = {0, 1, 0}, silent_new = {0, 1, 5}, crowd = {0, 7, 5},
                      greeted = {1, 9, 0};

    ck_assert_uint_eq(oob_waiter_due(&silent_new), OOB_WAIT_SILENT_NS + 5);
    ck_assert_uint_eq(oob_waiter_due(&greeted), OOB_WAIT_GREETED_NS);
    ck_assert(oob_waiter_goes_before(&silent_old, &silent_new) &&
              !oob_waiter_goes_before(&silent_new, &silent_old));
    ck_assert(oob_waiter_goes_before(&crowd, &silent_old) &&
              !oob_waiter_goes_before(&silent_old, &crowd));
    ck_assert(oob_waiter_goes_before(&silent_new, &greeted) &&
              !oob_waiter_goes_before(&greeted, &silent_new));
    ck_assert(!oob_waiter_goes_before(&crowd, &crowd));
}
END_TEST

/* What the kernel keeps for us while the thread is busy. */
START_TEST(backlog_of_a_storm)
{
    struct ep *b = ep_new();
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);
    int most = somaxconn();

    ck_assert_int_eq(getsockopt(inside(b)->door.fd, IPPROTO_TCP, TCP_INFO, &info, &len), 0);
    ck_assert_uint_eq(info.tcpi_sacked,
                      most < 4096 ? (unsigned)most : 4096u); /* of a listener: its backlog */
}
END_TEST

int main(void)
{
    static const TTest **const cases[] = {
        &a_place_that_is_free_is_used_at_once,
        &start_storm_beside_a_stranger,
        &who_crowds_goes_first,
        &words_that_wait_count,
        &a_stranger_gives_up_its_descriptor,
        &order_of_going,
        &backlog_of_a_storm,
    };

    return rig_main("oob_tcp_storm", cases, COUNT(cases), NULL, 0);
}
