/*
 * The promises of r2_oob.h over MPI, and what only a process with both backends can show: peers
 * that MPI does not reach, and MPI that ends. Each test has a process of its own, which is an MPI
 * job of one rank with several endpoints; test_oob_conform_ranks.c has several ranks.
 */
#include "tests/unit/oob_mpi_rig.h"
#include "tests/unit/test_oob_conform_suite.h"

#include "oob/mpi/oob_mpi.h"

static int mpi_finalize(void)
{
    int (*call)(void);

    *(void **)&call = dlsym(mpi_module, "MPI_Finalize");
    ck_assert(call != NULL);
    return call();
}

/* ---- both backends in one job ---- */

/* One end has MPI, the other has not, whoever dials: TCP, and both ends know it. */
START_TEST(mpi_and_tcp_meet_by_tcp)
{
    struct ep *m = ep_new_of(BY_MPI), *t = ep_new_of(BY_TCP);
    struct ep *dialler = _i == 0 ? m : t, *listener = _i == 0 ? t : m;
    struct r2_oob_peer *p = dial(dialler, &listener->name);

    wire_ms = 20;
    UNTIL(m->up, 1);
    UNTIL(t->up, 1);
    ck_assert_int_eq(strncmp(m->oob->ops->peer_str(m->peer), "127.0.0.1:", 10), 0);
    ck_assert_int_eq(say(dialler, p, "there"), 0);
    UNTIL(listener->got, 1);
    ck_assert_int_eq(say(listener, listener->peer, "and back"), 0);
    UNTIL(dialler->got, 1);
    ck_assert_int_eq(m->down + t->down, 0);
    /* the wrapper goes with the last reference, and the dialled end hears of it */
    dialler->oob->ops->peer_put(p);
    UNTIL(listener->down, 1);
}
END_TEST

/* A mark that happens to be ours, of an endpoint that is not in our job: found out by asking, then
 * TCP. */
START_TEST(another_job_with_our_mark)
{
    struct ep *m = ep_new_of(BY_MPI), *t = ep_new_of(BY_TCP);
    struct r2_oob_name n = t->name;

    wire_ms = 20;
    n.world = m->name.world;
    n.scope = m->name.scope;
    dial(m, &n);
    UNTIL(m->up, 1);
    UNTIL(t->up, 1);
    ck_assert_int_eq(say(m, m->peer, "found"), 0);
    UNTIL(t->got, 1);
}
END_TEST

START_TEST(a_rank_that_is_not_there)
{
    struct ep *m = ep_new_of(BY_MPI), *t = ep_new_of(BY_TCP);
    struct r2_oob_name n = t->name;

    wire_ms = 20;
    n.world = m->name.world;
    n.scope = m->name.scope | 0xffff;
    dial(m, &n);
    UNTIL(m->up, 1);
}
END_TEST

/* Of the three that talk by MPI, no two lose each other for good when it ends; their words go on by
 * TCP. */
START_TEST(mpi_ends)
{
    struct ep *a = ep_new(), *b = ep_new(), *c = ep_new();
    struct r2_oob_peer *ab = dial(a, &b->name), *cb = dial(c, &b->name);
    struct r2_oob_events ev = {a, told_message, told_up, told_down};
    char why[256] = "";
    pthread_t t;

    UNTIL(a->up, 1);
    UNTIL(c->up, 1);
    UNTIL(b->up, 2);
    ck_assert_int_eq(say(a, ab, "by MPI"), 0);
    UNTIL(b->got, 1);
    ck_assert_int_eq(pthread_create(&t, NULL, (void *(*)(void *))(void *)mpi_finalize, NULL), 0);
    wire_ms = 20;
    UNTIL(a->up, 2);
    UNTIL(c->up, 2);
    UNTIL(b->up, 4);
    pthread_join(t, NULL);
    ck_assert_int_eq(a->down, 1);
    ck_assert_int_eq(c->down, 1);
    ck_assert_int_eq(b->down, 2);
    ck_assert_int_eq(strncmp(a->oob->ops->peer_str(ab), "127.0.0.1:", 10), 0);
    ck_assert_int_eq(say(a, ab, "by TCP"), 0);
    ck_assert_int_eq(say(c, cb, "by TCP"), 0);
    UNTIL(b->got, 3);
    ck_assert_int_eq(say(b, b->peer, "back"), 0);
    UNTIL(c->got, 1);
    /* new ones are told no */
    ck_assert_ptr_null(mpi_make(&ev, why, sizeof(why)));
    ck_assert_str_eq(why, "the program has called MPI_Finalize");
}
END_TEST

/* The endpoints' thread is the one that finalizes, or is stuck: MPI_Finalize waits a bounded time.
 */
START_TEST(mpi_ends_and_nobody_takes_leave)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_peer *p = dial(a, &b->name);
    struct r2_env env;
    uint64_t start;

    r2_env_default(&env);
    UNTIL(a->up, 1);
    UNTIL(b->up, 1);
    start = env.now_ns(env.arg);
    ck_assert_int_eq(mpi_finalize(), 0);
    ck_assert_uint_lt(env.now_ns(env.arg) - start, 10 * SEC);
    wire_ms = 20;
    UNTIL(a->up, 2);
    UNTIL(b->up, 2);
    ck_assert_int_eq(say(a, p, "by TCP"), 0);
    UNTIL(b->got, 1);
    a->oob->ops->drain(a->oob, 100 * MS);
}
END_TEST

static const struct {
    int number, key; /* which of them the sender has wrong */
    const char *why;
} wrong[] = {{1, 0, "replayed"}, {0, 1, "its tag is wrong"}};
static int bad_lines, wrong_at;

static void count_bad(enum r2_log_level level, const char *file, int line, const char *msg)
{
    if (level == R2_LOG_WARN && strstr(msg, "bad frame from MPI rank 0 at ") != NULL) {
        bad_lines += strstr(msg, wrong[wrong_at].why) != NULL ? 1 : 1000;
    }
}

/* Counted each time, said once; the channel comes back. */
START_TEST(bad_frames)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct mpi_peer *p = (struct mpi_peer *)dial(a, &b->name);

    wrong_at = _i;
    bad_lines = 0;
    r2_log_sink_set(count_bad);
    for (int n = 1; n <= 3; n++) {
        UNTIL(a->up, n);
        UNTIL(b->up, n);
        p->cur.tx_seq -= (unsigned)wrong[_i].number;
        p->cur.keys.dialler.k0 ^= (unsigned)wrong[_i].key;
        ck_assert_int_eq(say(a, (struct r2_oob_peer *)p, "not like this"), 0);
        UNTIL(b->down, n);
        r2_log_flush();
        ck_assert_uint_eq(counters(b).bad_frames, (unsigned)n);
        ck_assert_uint_eq(counters(b).strangers, 0);
        ck_assert_int_eq(b->got, 0);
        ck_assert_int_eq(bad_lines, 1);
    }
    UNTIL(a->up, 4);
    ck_assert_int_eq(say(a, (struct r2_oob_peer *)p, "like this"), 0);
    UNTIL(b->got, 1);
}
END_TEST

/* A child of fork() has a copy of the module and no MPI. */
START_TEST(a_forked_child_has_no_mpi)
{
    struct r2_oob_events ev = {NULL, told_message, told_up, told_down};
    char why[256] = "";
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        _exit(mpi_make(&ev, why, sizeof(why)) == NULL && strstr(why, "parent") != NULL ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(module_without_mpi_init)
{
    struct r2_oob_events ev = {NULL, told_message, told_up, told_down};
    char why[256] = "";

    module_open();
    ck_assert_ptr_null(mpi_make(&ev, why, sizeof(why)));
    ck_assert_str_eq(why, "the program has not called MPI_Init");
}
END_TEST

START_TEST(module_of_another_version)
{
    void *h = module_open();
    r2_oob_mpi_create_fn create = (r2_oob_mpi_create_fn)dlsym(h, R2_OOB_MPI_ENTRY);
    struct r2_oob_mpi_params p = {.abi = R2_OOB_MPI_ABI + 1, .size = sizeof(p)};
    struct r2_oob_events ev = {NULL, told_message, told_up, told_down};
    char why[256] = "";

    ck_assert_ptr_nonnull(create);
    ck_assert_ptr_null(create(&p, &ev, why, sizeof(why)));
    ck_assert_ptr_nonnull(strstr(why, "version"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("oob_conform_mpi");
    TCase *t = tcase_create("both"), *n = tcase_create("no MPI");

    if (!module_is_there()) {
        return 77;
    }
    promises(s, "mpi", begin_mpi);
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, begin_mpi, end_all);
    tcase_add_loop_test(t, mpi_and_tcp_meet_by_tcp, 0, 2);
    tcase_add_test(t, another_job_with_our_mark);
    tcase_add_test(t, a_rank_that_is_not_there);
    tcase_add_test(t, mpi_ends);
    tcase_add_test(t, mpi_ends_and_nobody_takes_leave);
    tcase_add_loop_test(t, bad_frames, 0, (int)(sizeof(wrong) / sizeof(wrong[0])));
    tcase_add_test(t, a_forked_child_has_no_mpi);
    suite_add_tcase(s, t);
    tcase_add_test(n, module_without_mpi_init);
    tcase_add_test(n, module_of_another_version);
    suite_add_tcase(s, n);
    return conform_run(s);
}
