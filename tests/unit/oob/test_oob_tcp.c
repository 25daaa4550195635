/* The TCP out-of-band channel in good times: names, messages, queues, references, the end. */
#include "tests/unit/oob_rig.h"

#include <sys/resource.h>

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
    for (size_t i = 0; i < len; i++) {
        b[i] = (uint8_t)(n * 31 + (int)i);
    }
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
        if (i % 50 == 0) {
            turn();
        }
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
    for (int i = 0; i < 10; i++) {
        ck_assert_int_eq(a->oob->ops->send(p, msg, R2_OOB_MAX_MESSAGE), 0);
    }
    UNTIL(b->got, 10);
    ck_assert_mem_eq(b->keep + 9 * R2_OOB_MAX_MESSAGE, msg, R2_OOB_MAX_MESSAGE);
}
END_TEST

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
    while (memcpy(msg, &sent, sizeof(sent)), a->oob->ops->send(p, msg, sizeof(msg)) == 0) {
        sent++;
    }
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
    for (int i = 0; i < 100; i++) {
        ck_assert_mem_eq(b->keep + (size_t)i * sizeof(msg), &i, sizeof(i));
    }
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
    for (int i = 0; i < 60; i++) {
        ck_assert_int_eq(a->oob->ops->send(p, msg, sizeof(msg)), 0);
    }
    /* unread bytes on our side must not turn the end into an RST that destroys what b has not read
     * yet */
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
    for (int i = 0; i < 60; i++) {
        ck_assert_int_eq(a->oob->ops->send(p, msg, sizeof(msg)), 0);
    }
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

/* The other family, where this host has it. */
START_TEST(over_ipv6)
{
    struct r2_oob_tcp_config cfg = {.ifname = "lo", .family = "AF_INET6"};
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_events ev = {b, told_message, told_up, told_down};
    char why[256];
    struct r2_oob_peer *p;

    b->oob->ops->destroy(b->oob);
    b->oob = r2_oob_tcp_create(&cfg, &ev, why, sizeof(why));
    if (b->oob == NULL) {
        ck_assert_msg(strstr(why, "no interface") != NULL, "%s", why);
        return;
    }
    b->oob->ops->name_get(b->oob, &b->name);
    ck_assert_int_eq(b->name.family, 6);
    p = dial(a, &b->name);
    UNTIL(a->up, 1);
    ck_assert_int_eq(strncmp(a->oob->ops->peer_str(p), "[::1]:", 6), 0);
    ck_assert_int_eq(say(a, p, "six"), 0);
    UNTIL(b->got, 1);
}
END_TEST

/* The end of the peer is found by send() first: no upcall from there, the next turn tells. */
START_TEST(send_meets_a_dead_socket)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_peer *p = dial(a, &b->name);
    int rc = 0;

    UNTIL(a->up, 1);
    UNTIL(b->up, 1);
    /* unread bytes at its end make this an RST */
    ck_assert_int_eq(say(a, p, "unread"), 0);
    ep_kill(b);
    for (int i = 0; i < 1000 && rc == 0; i++) {
        rc = say(a, p, "into the void");
    }
    ck_assert_int_eq(rc, -1);
    ck_assert_int_eq(errno, ENOTCONN);
    ck_assert_int_eq(a->down, 0);
    a->oob->ops->progress(a->oob, clock_ns);
    ck_assert_int_eq(a->down, 1);
    UNTIL(a->refused, 1);
}
END_TEST

START_TEST(put_while_dialling)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_peer *p = dial(a, &b->name);

    a->oob->ops->progress(a->oob, clock_ns);
    ck_assert_int_eq(live_channels(a), 1);
    a->oob->ops->peer_put(p);
    settle();
    ck_assert_ptr_null(inside(a)->peers);
    ck_assert_int_eq(live_channels(a) + live_channels(b), 0);
    ck_assert_int_eq(a->up + a->down + b->up, 0);
    ck_assert_uint_eq(counters(b).strangers, 0);
}
END_TEST

/* With no descriptor left the listener pauses instead of spinning, and goes on when there is one.
 */
START_TEST(out_of_descriptors)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct rlimit was, tight;
    int top = dup(0), fd = connect_to(b->name.port);
    uint64_t next;

    getrlimit(RLIMIT_NOFILE, &was);
    tight = was;
    tight.rlim_cur = (rlim_t)(top + 1); /* everything up to fd is taken, fd itself lies above */
    close(top);
    top = dup(0);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &tight), 0);
    next = b->oob->ops->progress(b->oob, clock_ns);
    ck_assert_int_eq(live_channels(b), 0);
    ck_assert_uint_eq(next, clock_ns + 100 * MS);
    settle(); /* ends: nothing is readable while it pauses */
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &was), 0);
    close(top);
    close(fd);
    dial(a, &b->name);
    UNTIL(a->up, 1);
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
    while (a->oob->ops->send(p, big, sizeof(big)) == 0) {
        sent++;
    }
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
        if (i % 3 == 0) {
            dial(hub, &e[i]->name);
        }
    }
    UNTIL(hub->up, n);
    for (int i = 0; i < n; i++) {
        UNTIL(e[i]->up, 1);
    }
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
    for (int i = 0; i < n / 2; i++) {
        ep_kill(e[i]);
    }
    UNTIL(hub->down, n / 2);
    ck_assert_uint_eq(counters(hub).received, (uint64_t)n);
}
END_TEST

static uint64_t busy_ns; /* the clock of an endpoint that takes its time */

static uint64_t busy_now(void *arg)
{
    return busy_ns;
}

static int quiet_heard;

static void takes_time(struct ep *e, struct r2_oob_peer *p, const void *msg, size_t len)
{
    busy_ns += 50000;
    quiet_heard += len == 1;
}

/* An endpoint that takes 50 us for a message, with channels to three others. */
static struct ep *busy_hub(struct ep *e[3])
{
    struct ep *hub = ep_new();

    for (int i = 0; i < 3; i++) {
        e[i] = ep_new();
        dial(e[i], &hub->name);
    }
    UNTIL(hub->up, 3);
    for (int i = 0; i < 3; i++) {
        UNTIL(e[i]->up, 1);
    }
    hub->on_message = takes_time;
    inside(hub)->env.now_ns = busy_now;
    quiet_heard = 0;
    return hub;
}

/* Two peers say much, one a word: a turn ends in about a millisecond whatever there is to read,
 * each peer is heard before long, and nothing is lost. */
START_TEST(a_turn_has_an_end)
{
    struct ep *e[3], *hub = busy_hub(e);
    uint8_t msg[200] = {0};
    int turns = 0;

    for (int i = 0; i < 2000; i++) {
        ck_assert_int_eq(e[i % 2]->oob->ops->send(e[i % 2]->peer, msg, sizeof(msg)), 0);
    }
    ck_assert_int_eq(e[2]->oob->ops->send(e[2]->peer, msg, 1), 0);
    for (int i = 0; i < 3; i++) { /* into the sockets */
        e[i]->oob->ops->progress(e[i]->oob, clock_ns);
    }
    for (; hub->got < 2001; turns++) {
        int got = hub->got;

        ck_assert_int_lt(turns, 2001);
        ck_assert_int_gt(poll_all(20000), 0);
        hub->oob->ops->progress(hub->oob, clock_ns);
        ck_assert_int_le(hub->got - got, 20 + 2 * 8192 / (int)sizeof(msg));
        ck_assert(turns < 8 || quiet_heard);
        for (int i = 0; i < 2; i++) { /* what had no room before */
            e[i]->oob->ops->progress(e[i]->oob, clock_ns);
        }
    }
    ck_assert_int_ge(turns, 2001 / 101);
}
END_TEST

/* The process stood still for longer than a channel may be silent; its peers spoke meanwhile, and
 * more than is read in a turn. None of them is taken for dead. */
START_TEST(who_has_spoken_is_not_silent)
{
    struct ep *e[3], *hub = busy_hub(e);
    uint8_t msg[200] = {0};

    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 30; k++) {
            ck_assert_int_eq(e[i]->oob->ops->send(e[i]->peer, msg, sizeof(msg)), 0);
        }
        e[i]->oob->ops->progress(e[i]->oob, clock_ns);
    }
    clock_ns += 31 * SEC;
    ck_assert_int_gt(poll_all(20000), 0);
    for (int i = 0; i < 50; i++) {
        hub->oob->ops->progress(hub->oob, clock_ns);
    }
    ck_assert_int_eq(hub->got, 90);
    ck_assert_int_eq(hub->down, 0);
}
END_TEST

int main(void)
{
    static const TTest **const cases[] = {
        &names,
        &no_such_interface,
        &both_ways,
        &descriptor_is_readable,
        &order,
        &largest_message,
        &queue_full,
        &last_reference_closes_in_order,
        &put_from_an_upcall,
        &drain_brings_everything_out,
        &drain_has_a_limit,
        &over_ipv6,
        &send_meets_a_dead_socket,
        &put_while_dialling,
        &out_of_descriptors,
        &to_ourselves,
        &many_peers,
        &a_turn_has_an_end,
        &who_has_spoken_is_not_silent,
    };

    return rig_main("oob_tcp", cases, COUNT(cases), NULL, 0);
}
