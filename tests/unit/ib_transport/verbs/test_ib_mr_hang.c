/* Registrations where a driver does not come back. */
#include "tests/unit/mr_rig.h"

static struct ib_mr *watched;
static atomic_int stop;

/* The same over all NICs, until it is told to stop. */
static void *taker_of_all(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;

    while (!atomic_load(&stop)) {
        struct ib_mr *m = host((size_t)(rand_r(&seed) % 8) * PAGE, PAGE, ALL);

        if (m == NULL || (!ib_mr_rkey(m, 0) && !ib_mr_rkey(m, 2))) {
            return (void *)1;
        }
        ib_mr_put(cache, m);
    }
    return NULL;
}

static int fd_is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* --- a driver that does not come back --- */

enum where { IN_REG = 1, IN_DEREG };

static struct ib_verbs true_verbs;
static atomic_int hang_nic, hang_where; /* the device whose calls stay, and which; 0: none */
static atomic_int inside;               /* calls that stay */
static pthread_mutex_t hang_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t hang_over = PTHREAD_COND_INITIALIZER;

static void stay(struct ibv_context *ctx, int where)
{
    if (ctx != &fake_dev[atomic_load(&hang_nic)].ctx || atomic_load(&hang_where) != where) {
        return;
    }
    pthread_mutex_lock(&hang_lock);
    atomic_fetch_add(&inside, 1);
    while (atomic_load(&hang_where) == where) {
        pthread_cond_wait(&hang_over, &hang_lock);
    }
    atomic_fetch_sub(&inside, 1);
    pthread_mutex_unlock(&hang_lock);
}

static struct ibv_mr *reg_hung(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
                               unsigned int access)
{
    stay(pd->context, IN_REG);
    return true_verbs.reg_mr_iova2(pd, addr, len, iova, access);
}

static struct ibv_mr *reg_dmabuf_hung(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova,
                                      int fd, int access)
{
    stay(pd->context, IN_REG);
    return true_verbs.reg_dmabuf_mr(pd, offset, len, iova, fd, access);
}

static int dereg_hung(struct ibv_mr *mr)
{
    stay(mr->context, IN_DEREG);
    return true_verbs.dereg_mr(mr);
}

static void begin_hung(int nic, enum where where)
{
    true_verbs = verbs;
    cfg.t_fence_ms = 40;
    verbs.reg_mr_iova2 = reg_hung;
    verbs.reg_dmabuf_mr = reg_dmabuf_hung;
    verbs.dereg_mr = dereg_hung;
    begin();
    atomic_store(&hang_nic, nic);
    atomic_store(&hang_where, where);
}

static void come_back(void)
{
    pthread_mutex_lock(&hang_lock);
    atomic_store(&hang_where, 0);
    pthread_cond_broadcast(&hang_over);
    pthread_mutex_unlock(&hang_lock);
}

/* Test limits are what bounds these. */
static void wait_live(int n)
{
    while (live() != n) {
        usleep(1000);
    }
}

/* It keeps neither other NICs, nor other buffers, nor a release; what it brings behind that is
 * taken away. */
START_TEST(a_hung_driver_keeps_nobody)
{
    struct ib_mr *a, *b;
    struct ib_mr_stats st;

    begin_hung(1, IN_REG);
    a = host(0, PAGE, ALL);
    ck_assert_ptr_nonnull(a);
    b = host(8 * PAGE, PAGE, ALL);
    ck_assert_ptr_nonnull(b);
    ck_assert_ptr_eq(host(0, PAGE, ALL), a);
    ck_assert(ib_mr_rkey(a, 0) && ib_mr_rkey(a, 2) && ib_mr_rkey(b, 0) && ib_mr_rkey(b, 2));
    ck_assert(!ib_mr_rkey(a, 1) && !ib_mr_rkey(b, 1));
    ib_mr_put(cache, a);
    ib_mr_put(cache, a);
    ck_assert_int_eq(live(), 2); /* of b */
    ck_assert_int_eq(atomic_load(&inside), 1);
    r2_log_flush();
    ib_mr_cache_stats(cache, &st);
    ck_assert_uint_eq(st.owed, 1);
    come_back();
    while (!ib_mr_rkey(b, 1)) { /* a, which came late, is taken away before it */
        usleep(1000);
    }
    ck_assert_int_eq(live(), 3); /* b on all, a on none */
    ck_assert_int_eq(atomic_load(&fake_dev[1].reg_calls), 2);
    ib_mr_cache_stats(cache, &st);
    ck_assert_uint_eq(st.late, 1);
    ib_mr_put(cache, b);
    end();
}
END_TEST

/*
 * The registration that others wait for is the one that hangs: they go on over the NICs that have
 * it.
 */
START_TEST(its_key_comes_when_it_does)
{
    struct ib_mr *a;

    begin_hung(0, IN_REG);
    a = host(0, PAGE, ALL);
    ck_assert_ptr_nonnull(a);
    ck_assert_uint_eq(ib_mr_lkey(a, 0), 0);
    come_back();
    while (ib_mr_lkey(a, 0) == 0) {
        usleep(1000);
    }
    ck_assert_ptr_eq(host(0, PAGE, 1), a);
    ck_assert_int_eq(atomic_load(&fake_dev[0].reg_calls), 1);
    ib_mr_put(cache, a);
    ib_mr_put(cache, a);
    end();
}
END_TEST

START_TEST(a_driver_that_hangs_in_a_release)
{
    struct ib_mr *a, *b;
    struct ib_mr_stats st;

    begin_hung(1, IN_DEREG);
    a = host(0, PAGE, ALL);
    b = host(8 * PAGE, PAGE, ALL);
    ib_mr_put(cache, a);
    ck_assert_int_eq(live(), 4); /* b on all, a on the one */
    ib_mr_put(cache, b);
    ck_assert_int_eq(live(), 2);
    ck_assert_int_eq(atomic_load(&inside), 1);
    ib_mr_cache_stats(cache, &st);
    ck_assert_uint_eq(st.owed, 2);
    a = host(0, PAGE, 5);
    ck_assert_ptr_nonnull(a);
    come_back();
    wait_live(2);
    ib_mr_put(cache, a);
    end();
}
END_TEST

/* No other NIC would do: the caller hears of it, in bounded time, and the next one at once. */
START_TEST(the_only_nic_hangs)
{
    cfg.t_give_up_ms = 300;
    begin_hung(2, IN_REG);
    ck_assert_ptr_null(host(0, PAGE, 4));
    ck_assert_int_eq(errno, ETIMEDOUT);
    ck_assert_ptr_null(host(8 * PAGE, PAGE, 4));
    ck_assert_int_eq(errno, ETIMEDOUT);
    ck_assert_int_eq(atomic_load(&inside), 1);
    come_back();
    while ((watched = host(16 * PAGE, PAGE, 4)) == NULL) { /* until the worker is out of it, too */
        ck_assert_int_eq(errno, ETIMEDOUT);
    }
    ib_mr_put(cache, watched);
    ck_assert_int_eq(atomic_load(&fake_dev[2].reg_calls),
                     2); /* the second one was not asked for any more */
    wait_live(0);
    end();
}
END_TEST

/* NCCL closes its descriptor behind the call; ours stays as long as the late call needs it, and no
 * longer. */
START_TEST(dmabuf_of_a_hung_driver)
{
    int fd = open("/dev/null", O_RDONLY), mine;
    struct ib_mr *a;

    fake_dmabuf_errno = 0;
    begin_hung(1, IN_REG);
    a = ib_mr_get(cache, mem, 1000, IB_PTR_CUDA, 64, fd, 3);
    ck_assert_ptr_nonnull(a);
    mine = a->dmabuf_fd;
    close(fd);
    ib_mr_put(cache, a);
    ck_assert(fd_is_open(mine));
    come_back();
    while (fd_is_open(mine)) {
        usleep(1000);
    }
    wait_live(0);
    end(); /* joins its thread */
    ck_assert_int_eq(fake_dev[1].last_fd, mine);
}
END_TEST

/* The instance goes with its driver inside: said, and all that it may come back to stays. */
START_TEST(destroyed_with_a_driver_inside)
{
    struct ib_mr *a;

    begin_hung(1, IN_REG);
    a = host(0, PAGE, ALL);
    ib_mr_put(cache, a);
    ck_assert_uint_eq(ib_mr_cache_destroy(cache, 1000000), 2);
    ck_assert_int_eq(live(), 0);
    come_back();
    while (atomic_load(&fake_dev[1].reg_calls) != 1 || live() != 0) {
        usleep(1000);
    }
}
END_TEST

/* Threads at work while a driver comes and goes. */
START_TEST(threads_and_a_driver_that_hangs_now_and_then)
{
    pthread_t t[4];
    void *bad;

    begin_hung(1, 0);
    for (uintptr_t i = 0; i < 4; i++) {
        pthread_create(&t[i], NULL, taker_of_all, (void *)(i + 1));
    }
    for (int i = 0; i < 6; i++) {
        atomic_store(&hang_where, i % 2 ? IN_DEREG : IN_REG);
        while (atomic_load(&inside) == 0) {
            usleep(1000);
        }
        usleep(20000);
        come_back();
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], &bad);
        ck_assert_ptr_null(bad);
    }
    wait_live(0);
    end();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ib_mr_hang");
    TCase *t = tcase_create("cache");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_hung_driver_keeps_nobody);
    tcase_add_test(t, its_key_comes_when_it_does);
    tcase_add_test(t, a_driver_that_hangs_in_a_release);
    tcase_add_test(t, the_only_nic_hangs);
    tcase_add_test(t, dmabuf_of_a_hung_driver);
    tcase_add_test(t, destroyed_with_a_driver_inside);
    tcase_add_test(t, threads_and_a_driver_that_hangs_now_and_then);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
