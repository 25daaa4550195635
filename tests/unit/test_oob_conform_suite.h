/* What r2_oob.h promises, as tests of the backend that the suite is run for. */
#ifndef TEST_OOB_CONFORM_SUITE_H
#define TEST_OOB_CONFORM_SUITE_H

#include "test_oob_conform.h"

/* ---- delivery ---- */

START_TEST(both_ways)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_peer *p = dial(a, &b->name);

    ck_assert_int_eq(a->oob->ops->peer_is_up(p), 0);
    ck_assert_int_eq(say(a, p, "too early"), -1);
    ck_assert_int_eq(errno, ENOTCONN);
    UNTIL(b->up, 1);
    UNTIL(a->up, 1);
    ck_assert_ptr_eq(a->peer, p);
    ck_assert_mem_eq(a->oob->ops->peer_uuid(p), b->name.uuid, 16);
    ck_assert_mem_eq(b->oob->ops->peer_uuid(b->peer), a->name.uuid, 16);
    ck_assert_ptr_nonnull(strstr(a->oob->ops->peer_str(p), "127.0.0.1:"));
    ck_assert_int_eq(strncmp(a->oob->ops->peer_str(p), "MPI rank 0 ", 11) == 0, backend == BY_MPI);
    ck_assert_int_eq(strncmp(b->oob->ops->peer_str(b->peer), "MPI rank 0 ", 11) == 0,
                     backend == BY_MPI);
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
    ck_assert_uint_eq(counters(b).strangers + counters(b).bad_frames + counters(b).reconnects, 0);
    ck_assert_int_eq(a->down + b->down, 0);
    /* the same process by its name: the same peer */
    ck_assert_ptr_eq(dial(b, &a->name), b->peer);
}
END_TEST

START_TEST(a_name_must_be_sound)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_name bad = b->name;

    ck_assert_mem_ne(a->name.uuid, b->name.uuid, 16);
    ck_assert_mem_ne(a->name.secret, b->name.secret, 16);
    bad.port = 0;
    ck_assert_ptr_null(a->oob->ops->peer_get(a->oob, &bad));
    ck_assert_int_eq(errno, EINVAL);
    bad = b->name;
    bad.uuid[0] = bad.uuid[1] = 0;
    ck_assert_ptr_null(a->oob->ops->peer_get(a->oob, &bad));
    turn();
    dial(a, &b->name);
    UNTIL(a->up, 1);
}
END_TEST

/* The descriptor tells of calls outside of progress() too. */
START_TEST(a_call_wakes)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct pollfd p = {.fd = a->oob->ops->fd(a->oob), .events = POLLIN};

    settle();
    ck_assert_int_eq(poll(&p, 1, 0), 0);
    dial(a, &b->name);
    ck_assert_int_eq(poll(&p, 1, 0), 1);
    UNTIL(a->up, 1);
    settle();
    ck_assert_int_eq(poll(&p, 1, 0), 0);
}
END_TEST

#define ORDER_COUNT 2000

static void expect_next(struct ep *e, struct r2_oob_peer *p, const void *msg, size_t len)
{
    int n = e->got - 1;
    uint8_t want[3000];

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
    for (int i = 0; i < ORDER_COUNT; i++) {
        size_t len = (size_t)(i * 37) % 3000;
        pattern(msg, len, i);
        ck_assert_int_eq(a->oob->ops->send(p, msg, len), 0);
        ck_assert_int_eq(b->oob->ops->send(b->peer, msg, len), 0);
        if (i % 50 == 0) {
            turn();
        }
    }
    UNTIL(b->got, ORDER_COUNT);
    UNTIL(a->got, ORDER_COUNT);
    settle();
    ck_assert_int_eq(a->got + b->got, 2 * ORDER_COUNT);
}
END_TEST

/* Large ones between small ones: they take another way inside of MPI, and must not be overtaken. */
START_TEST(large_messages)
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
        ck_assert_int_eq(say(a, p, "small"), 0);
    }
    UNTIL(b->got, 20);
    for (int i = 0; i < 10; i++) {
        const uint8_t *at = b->keep + i * (R2_OOB_MAX_MESSAGE + 5);
        ck_assert_mem_eq(at, msg, R2_OOB_MAX_MESSAGE);
        ck_assert_mem_eq(at + R2_OOB_MAX_MESSAGE, "small", 5);
    }
}
END_TEST

/* A peer that takes nothing: the queue ends, and what was taken into it arrives. */
START_TEST(queue_full)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_peer *p = dial(a, &b->name);
    static uint8_t msg[60000];
    int sent = 0;

    UNTIL(a->up, 1);
    UNTIL(b->up, 1);
    b->asleep = 1;
    while (memcpy(msg, &sent, sizeof(sent)), a->oob->ops->send(p, msg, sizeof(msg)) == 0) {
        sent++;
    }
    ck_assert_int_eq(errno, EAGAIN);
    ck_assert_int_ge(sent, 60);
    ck_assert_int_le(sent, 400); /* TCP: and what the sockets take */
    ck_assert_uint_eq(counters(a).queue_full, 1);
    ck_assert_uint_eq(counters(a).sent, (uint64_t)sent);
    b->asleep = 0;
    UNTIL(b->got, sent);
    ck_assert_int_eq(a->down, 0);
    for (int i = 0; i < 10; i++) {
        ck_assert_mem_eq(b->keep + (size_t)i * sizeof(msg), &i, sizeof(i));
    }
}
END_TEST

#define MANY 20

/* Everybody with everybody, all dialling at once from both ends. */
START_TEST(many_peers)
{
    static struct r2_oob_peer *p[MANY][MANY];
    uint8_t msg[100];

    for (int i = 0; i < MANY; i++) {
        ep_new()->on_message = NULL;
    }
    for (int i = 0; i < MANY; i++) {
        for (int k = 0; k < MANY; k++) {
            p[i][k] = i == k ? NULL : dial(&eps[i], &eps[k].name);
        }
    }
    for (int i = 0; i < MANY; i++) {
        UNTIL(eps[i].up, MANY - 1);
    }
    for (int i = 0; i < MANY; i++) {
        for (int k = 0; k < MANY; k++) {
            pattern(msg, sizeof(msg), i * MANY + k);
            if (i != k) {
                ck_assert_int_eq(eps[i].oob->ops->send(p[i][k], msg, sizeof(msg)), 0);
            }
        }
    }
    for (int i = 0; i < MANY; i++) {
        UNTIL(eps[i].got, MANY - 1);
    }
    settle();
    for (int i = 0; i < MANY; i++) {
        ck_assert_int_eq(eps[i].got, MANY - 1);
        ck_assert_int_eq(eps[i].up, MANY - 1);
        ck_assert_int_eq(eps[i].down, 0);
        ck_assert_uint_eq(counters(&eps[i]).strangers + counters(&eps[i]).bad_frames, 0);
    }
}
END_TEST

START_TEST(to_ourselves)
{
    struct ep *a = ep_new();
    struct r2_oob_peer *p = dial(a, &a->name);

    UNTIL(a->up, 1);
    ck_assert_int_eq(say(a, p, "1"), 0);
    ck_assert_int_eq(a->got, 0); /* not inside of send */
    UNTIL(a->got, 1);
    ck_assert_mem_eq(a->keep, "1", 1);
    a->oob->ops->peer_put(p);
}
END_TEST

/* ---- loss, return, refusal, end ---- */

/* Both dial, in whatever order they get their turns: one channel, told once at each end, nothing
 * lost on it. */
START_TEST(crossing_dials)
{
    unsigned seed = (unsigned)_i * 7919u + 1;
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_peer *pa = dial(a, &b->name), *pb = dial(b, &a->name);
    uint64_t start = clock_ns;

    for (int i = 0; i < 12; i++) {
        struct ep *e = rand_r(&seed) % 2 ? a : b;
        e->oob->ops->progress(e->oob, clock_ns);
    }
    UNTIL(a->up, 1);
    UNTIL(b->up, 1);
    ck_assert_uint_lt(clock_ns - start, 1 * SEC); /* no dial had to expire */
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(say(a, pa, "x"), 0);
        ck_assert_int_eq(say(b, pb, "y"), 0);
    }
    UNTIL(a->got, 100);
    UNTIL(b->got, 100);
    settle();
    ck_assert_int_eq(a->up + b->up, 2);
    ck_assert_int_eq(a->down + b->down, 0);
    ck_assert_int_eq(a->got + b->got, 200);
}
END_TEST

/* The peer's process stands still for longer than a channel may be silent, and then goes on. */
START_TEST(lost_and_back)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_peer *p = dial(a, &b->name);
    uint64_t start;

    UNTIL(a->up, 1);
    UNTIL(b->up, 1);
    run_for(10 * SEC); /* silence alone is no reason */
    ck_assert_int_eq(a->down + b->down, 0);
    for (int i = 1; i <= 3; i++) {
        int was = a->down;
        b->asleep = 1;
        start = clock_ns;
        ck_assert_int_eq(say(a, p, "perhaps lost"), 0);
        UNTIL(a->down, was + 1);
        ck_assert_uint_ge(clock_ns - start, 2 * SEC);
        ck_assert_uint_le(clock_ns - start, 4 * SEC);
        ck_assert_int_eq(say(a, p, "certainly not sent"), -1);
        run_for(1 * SEC);
        b->asleep = 0;
        UNTIL(a->up, i + 1);
        UNTIL(b->up, i + 1);
        b->kept = 0;
        b->got = 0;
        ck_assert_int_eq(say(a, p, "new"), 0);
        UNTIL(b->got, 1);
        ck_assert_uint_eq(b->kept, 3);
        ck_assert_mem_eq(b->keep, "new", 3);
    }
    ck_assert_int_eq(b->down, 3);
    ck_assert_uint_eq(counters(a).reconnects, 3);
    ck_assert_uint_eq(counters(a).strangers + counters(a).bad_frames, 0);
    ck_assert_uint_eq(counters(b).strangers + counters(b).bad_frames, 0);
}
END_TEST

START_TEST(wrong_secret)
{
    struct ep *a = ep_new(), *b = ep_new(), *c = ep_new();
    struct r2_oob_name forged = b->name;

    forged.secret[3] ^= 1;
    dial(a, &forged);
    dial(c, &b->name);
    UNTIL(c->up, 1);
    UNTIL(b->up, 1);
    UNTIL(a->down, 3); /* tries on, and fails on */
    ck_assert_int_eq(a->up, 0);
    ck_assert_int_eq(b->up, 1);
    ck_assert_int_eq(b->down + c->down, 0);
    ck_assert_uint_ge(counters(b).strangers, 2);
    ck_assert_int_eq(say(c, c->peer, "undisturbed"), 0);
    UNTIL(b->got, 1);
}
END_TEST

/* The other end goes without a word: lost, then refused for as long as one asks. */
START_TEST(peer_ends)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_peer *p = dial(a, &b->name);

    UNTIL(a->up, 1);
    UNTIL(b->up, 1);
    ep_kill(b);
    UNTIL(a->down, 1);
    ck_assert_int_eq(say(a, p, "x"), -1);
    UNTIL(a->refused, 3);
    ck_assert_int_eq(a->up, 1);
}
END_TEST

/* Nobody was ever there. */
START_TEST(nobody_there)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_name n = b->name;

    ep_kill(b);
    dial(a, &n);
    UNTIL(a->refused, 2);
    ck_assert_int_eq(a->up, 0);
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
    ck_assert_int_eq(b->down, 0);
    for (int i = 0; i < 60; i++) {
        ck_assert_int_eq(a->oob->ops->send(p, msg, sizeof(msg)), 0);
    }
    a->oob->ops->peer_put(p);
    UNTIL(b->down, 1);
    ck_assert_int_eq(b->got, 60);
    settle();
    ck_assert_int_eq(a->down, 0); /* nobody there to be told */
    ck_assert_uint_eq(counters(b).bad_frames, 0);
    /* and it can be had again */
    dial(a, &b->name);
    UNTIL(a->up, 2);
    UNTIL(b->up, 2);
}
END_TEST

static atomic_int reader_stop;

static void *drain_reader(void *arg)
{
    struct ep *b = arg;
    struct r2_env env;

    r2_env_default(&env);
    while (b->down == 0 && !atomic_load(&reader_stop)) {
        struct pollfd p = {.fd = b->oob->ops->fd(b->oob), .events = POLLIN};
        b->oob->ops->progress(b->oob, env.now_ns(env.arg));
        (void)poll(&p, 1, 1);
    }
    return NULL;
}

START_TEST(drain_brings_everything_out)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_peer *p = dial(a, &b->name);
    static uint8_t msg[60000];
    struct timespec until;
    struct r2_env env;
    pthread_t t;
    uint64_t start;

    r2_env_default(&env);
    UNTIL(a->up, 1);
    UNTIL(b->up, 1);
    for (int i = 0; i < 60; i++) {
        ck_assert_int_eq(a->oob->ops->send(p, msg, sizeof(msg)), 0);
    }
    atomic_store(&reader_stop, 0);
    ck_assert_int_eq(pthread_create(&t, NULL, drain_reader, b), 0);
    start = env.now_ns(env.arg);
    a->oob->ops->drain(a->oob, 20 * SEC);
    ck_assert_uint_lt(env.now_ns(env.arg) - start, 15 * SEC);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10; /* a bound against a hang; the reader ends by itself */
    if (pthread_timedjoin_np(t, NULL, &until) != 0) {
        atomic_store(&reader_stop, 1);
        pthread_join(t, NULL);
    }
    ck_assert_int_eq(b->down, 1);
    ck_assert_int_eq(b->got, 60);
    ck_assert_uint_eq(counters(b).bad_frames, 0);
}
END_TEST

/* All of them, in a case of its own; @begin sets the backend. */
static void promises(Suite *s, const char *name, SFun begin)
{
    static const TTest **const tests[] = {&both_ways,
                                          &a_name_must_be_sound,
                                          &a_call_wakes,
                                          &order,
                                          &large_messages,
                                          &queue_full,
                                          &many_peers,
                                          &to_ourselves,
                                          &lost_and_back,
                                          &wrong_secret,
                                          &peer_ends,
                                          &nobody_there,
                                          &last_reference_closes_in_order,
                                          &drain_brings_everything_out};
    TCase *t = tcase_create(name);

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, begin, end_all);
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        tcase_add_test(t, *tests[i]);
    }
    tcase_add_loop_test(t, crossing_dials, 0, 10);
    suite_add_tcase(s, t);
}

RIG int conform_run(Suite *s)
{
    SRunner *r = srunner_create(s);
    int failed;

    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
